#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/http_internal.h"

static bool parse_port(const char *text, int *ret_port)
{
    size_t length = strlen(text);
    if (length == 0 || length > 5 || strspn(text, "0123456789") != length)
        return false;
    *ret_port = atoi(text);
    return *ret_port <= 65535;
}

bool http_address_parse(struct http_address *address, const char *text, char *message, size_t message_bytes)
{
    memset(address, 0, sizeof *address);
    if (strncmp(text, "unix:", 5) == 0) {
        address->is_unix = true;
        if (text[5] == '\0' || strlen(text + 5) >= sizeof address->path) {
            snprintf(message, message_bytes, "%s: the path of a unix socket has 1 to %zu bytes", text,
                     sizeof address->path - 1);
            return false;
        }
        strcpy(address->path, text + 5);
        return true;
    }
    char host[64];
    const char *colon = strrchr(text, ':');
    int port;
    if (colon != NULL && parse_port(colon + 1, &port)) {
        size_t length = (size_t)(colon - text);
        bool brackets = length >= 2 && text[0] == '[' && text[length - 1] == ']';
        const char *start = brackets ? text + 1 : text;
        length -= brackets ? 2 : 0;
        if (length < sizeof host) {
            memcpy(host, start, length);
            host[length] = '\0';
            if (brackets ? uv_ip6_addr(host, port, (struct sockaddr_in6 *)&address->socket) == 0
                         : uv_ip4_addr(host, port, (struct sockaddr_in *)&address->socket) == 0)
                return true;
        }
    }
    snprintf(message, message_bytes, "%.200s: an address is written 127.0.0.1:8080, [::1]:8080 or unix:/path/of/socket",
             text);
    return false;
}

bool http_address_has_folder(const struct http_address *address)
{
    struct stat status;
    char folder[sizeof address->path];
    strcpy(folder, address->path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL || slash == folder)
        return true;
    *slash = '\0';
    return stat(folder, &status) == 0;
}

bool http_address_clear_stale(const struct http_address *address, char *message, size_t message_bytes)
{
    struct stat status;
    if (lstat(address->path, &status) != 0)
        return true; /* nothing there, or bind says what is wrong */
    if (!S_ISSOCK(status.st_mode)) {
        snprintf(message, message_bytes, "unix:%s: there is a file of that name that is not a socket", address->path);
        return false;
    }
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) {
        snprintf(message, message_bytes, "unix:%s: %s", address->path, strerror(errno));
        return false;
    }
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, address->path, strlen(address->path));
    bool stale = connect(descriptor, (struct sockaddr *)&name, sizeof name) != 0 && errno == ECONNREFUSED;
    close(descriptor);
    if (!stale) {
        snprintf(message, message_bytes, "unix:%s: another process listens there", address->path);
        return false;
    }
    unlink(address->path);
    return true;
}

char *http_address_of(const uv_tcp_t *handle)
{
    struct sockaddr_storage name;
    int length = sizeof name;
    char host[64] = "?";
    char *text = malloc(96);
    if (text == NULL || uv_tcp_getsockname(handle, (struct sockaddr *)&name, &length) != 0) {
        free(text);
        return NULL;
    }
    if (name.ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&name;
        uv_ip6_name(six, host, sizeof host);
        snprintf(text, 96, "[%s]:%d", host, ntohs(six->sin6_port));
    } else {
        const struct sockaddr_in *four = (const struct sockaddr_in *)&name;
        uv_ip4_name(four, host, sizeof host);
        snprintf(text, 96, "%s:%d", host, ntohs(four->sin_port));
    }
    return text;
}
