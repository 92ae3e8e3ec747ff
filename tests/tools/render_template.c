/* Renders chat templates for comparison with another renderer. Each line of standard input is an object {"template": text,
 * "variables": object, "now": seconds}; each line of standard output {"text"} or {"status", "message"}. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text_library.h"

static json_t *answer_to(const json_t *question)
{
    static const char *const names[] = {"ok", "invalid", "refused", "limit", "memory", "internal"};
    const json_t *source = json_object_get(question, "template");
    char *variables = json_dumps(json_object_get(question, "variables"), JSON_COMPACT), *text = NULL;
    struct text_template *template = NULL;
    struct text_error error;
    size_t length = 0;
    enum text_status status = variables == NULL ? TEXT_MEMORY
                                                : text_template_create(&template, json_string_value(source),
                                                                       json_string_length(source), &error);
    if (status == TEXT_OK)
        status = text_template_render(template, variables, strlen(variables),
                                      json_integer_value(json_object_get(question, "now")), &text, &length, &error);
    json_t *answer = status == TEXT_OK ? json_pack("{s:o}", "text", json_stringn(text, length))
                                       : json_pack("{s:s, s:s}", "status", names[status], "message", error.message);
    free(text);
    free(variables);
    text_template_destroy(template);
    return answer;
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    while ((length = getline(&line, &capacity, stdin)) > 0) {
        json_error_t error;
        json_t *question = json_loadb(line, (size_t)length, JSON_ALLOW_NUL, &error);
        json_t *answer = question != NULL ? answer_to(question) : NULL;
        if (answer == NULL) {
            fprintf(stderr, "not a question: %s\n", error.text);
            return EXIT_FAILURE;
        }
        json_dumpf(answer, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(answer);
        json_decref(question);
    }
    free(line);
    return EXIT_SUCCESS;
}
