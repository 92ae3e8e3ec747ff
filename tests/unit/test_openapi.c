/* proto/openapi.yaml and the routes of the daemon are one list. */
#include "tests/unit/service_fixture.h"

#include "proto/http_internal.h"
#include "proto/openapi.h"

enum {
    MAX_OPERATIONS = 200,
};

struct operation {
    char method[16], path[128];
};

struct description {
    struct operation operations[MAX_OPERATIONS];
    int n;
};

/* The file is written in one style: paths stand at two spaces under "paths:", methods at four. */
static void read_description(struct description *description)
{
    static const char *const methods[][2] = {
        {"get", "GET"}, {"put", "PUT"}, {"post", "POST"}, {"delete", "DELETE"}, {"patch", "PATCH"}};
    char path[128] = "";
    const char *line = strstr(openapi_yaml, "\npaths:\n");
    assert_non_null(line);
    description->n = 0;
    for (line += 8; *line == ' ' || *line == '\n'; line = strchr(line, '\n') + 1) {
        size_t length = strcspn(line, "\n");
        if (length > 4 && line[2] == '/' && line[length - 1] == ':') {
            assert_in_range(length - 3, 1, sizeof path - 1);
            snprintf(path, sizeof path, "%.*s", (int)(length - 3), line + 2);
        }
        for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
            char start[16];
            snprintf(start, sizeof start, "    %s:", methods[i][0]);
            if (length != strlen(start) || strncmp(line, start, length) != 0)
                continue;
            assert_in_range(description->n, 0, MAX_OPERATIONS - 1);
            struct operation *operation = &description->operations[description->n++];
            strcpy(operation->method, methods[i][1]);
            strcpy(operation->path, path);
        }
    }
}

static bool is_described(const struct description *description, const struct http_route *route)
{
    for (int i = 0; i < description->n; i++)
        if (strcmp(description->operations[i].method, route->method) == 0 &&
            strcmp(description->operations[i].path, route->pattern) == 0)
            return true;
    return false;
}

static bool is_served(const struct http_router *router, const struct operation *operation)
{
    for (int i = 0; i < router->n_routes; i++)
        if (strcmp(router->routes[i].method, operation->method) == 0 &&
            strcmp(router->routes[i].pattern, operation->path) == 0)
            return true;
    return false;
}

static void every_route_is_described_and_everything_described_is_served(void **state)
{
    struct fixture *f = *state;
    static struct description description;
    read_description(&description);
    for (int i = 0; i < f->server->router.n_routes; i++)
        if (!is_described(&description, &f->server->router.routes[i]))
            fail_msg("%s %s is not described", f->server->router.routes[i].method, f->server->router.routes[i].pattern);
    for (int i = 0; i < description.n; i++)
        if (!is_served(&f->server->router, &description.operations[i]))
            fail_msg("%s %s is not served", description.operations[i].method, description.operations[i].path);
    assert_int_equal(description.n, f->server->router.n_routes);
}

static void every_error_type_is_described(void **state)
{
    (void)state;
    static const enum api_error_kind kinds[] = {
#define KIND(name, status, type, code) API_ERROR_##name,
        API_ERRORS(KIND)
#undef KIND
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct api_error error;
        size_t length;
        api_error_set(&error, kinds[i], NULL, "x");
        char *json = api_error_json(&error, &length), type[64];
        assert_int_equal(sscanf(strstr(json, "\"type\":"), "\"type\":\"%60[a-z_]", type), 1);
        if (strstr(openapi_yaml, type) == NULL)
            fail_msg("no error type %s", type);
        free(json);
    }
}

static void it_is_served_whole_before_the_model_is_loaded(void **state)
{
    struct fixture *f = *state;
    int client = http_client_connect(&f->loop, http_server_address(f->server, 0));
    static const char request[] = "GET /openapi.yaml HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    http_client_send(&f->loop, client, request, strlen(request));
    receive(f, client, NULL);
    assert_memory_equal(received, "HTTP/1.1 200 OK\r\n", 17);
    assert_non_null(strstr(received, "\r\nContent-Type: application/yaml\r\n"));
    assert_string_equal(strstr(received, "\r\n\r\n") + 4, openapi_yaml);
    assert_int_equal(openapi_yaml_length, strlen(openapi_yaml));
    assert_non_null(strstr(openapi_yaml, "\n  version: " NPUD_VERSION "\n"));
    close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_route_is_described_and_everything_described_is_served),
        TEST(every_error_type_is_described),
        TEST(it_is_served_whole_before_the_model_is_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
