#include "proto/template_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"

bool template_fields_read(struct template_fields *fields, const json_t *object, struct api_error *error)
{
    static const char *const reserved[] = {"messages", "tools", "documents", "add_generation_prompt"};
    memset(fields, 0, sizeof *fields);
    json_t *variables = json_field(object, "chat_template_kwargs");
    if (variables == NULL)
        return true;
    if (!json_is_object(variables))
        return json_refuse(error, "chat_template_kwargs", variables, false, "an object");
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        if (json_object_get(variables, reserved[i]) == NULL)
            continue;
        char path[64];
        snprintf(path, sizeof path, "chat_template_kwargs.%s", reserved[i]);
        return api_error_set(error, API_ERROR_INVALID_VALUE, path, "%s may not be given: the request makes it", path);
    }
    fields->variables = json_incref(variables);
    return true;
}

bool template_fields_set_effort(struct template_fields *fields, const json_t *effort, const char *path,
                                struct api_error *error)
{
    static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
    if (effort == NULL || json_is_null(effort))
        return true;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++) {
        if (!json_is_text(effort, efforts[i]))
            continue;
        free(fields->reasoning_effort);
        fields->reasoning_effort = strdup(efforts[i]);
        return fields->reasoning_effort != NULL ||
               api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
    }
    return json_refuse(error, path, effort, json_is_string(effort), "none, minimal, low, medium, high or xhigh");
}

void template_fields_clear(struct template_fields *fields)
{
    json_decref(fields->variables);
    free(fields->reasoning_effort);
    memset(fields, 0, sizeof *fields);
}
