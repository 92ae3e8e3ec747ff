#include "proto/tool_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"

enum {
    PATH_BYTES = 96,
};

static bool out_of_memory(struct api_error *error)
{
    return api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
}

static bool missing(struct api_error *error, const char *path, const char *what)
{
    return api_error_set(error, API_ERROR_MISSING_PARAMETER, path, "%s is required: %s", path, what);
}

static const json_t *name_of(const json_t *tools, size_t index)
{
    return json_object_get(json_object_get(json_array_get(tools, index), "function"), "name");
}

static bool has_tool(const json_t *tools, const json_t *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (json_equal(name, name_of(tools, i)))
            return true;
    return false;
}

/* ---- one tool ---- */

static bool check_name(const json_t *tools, const json_t *name, const char *path, struct api_error *error)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    size_t length = json_string_length(name);
    if (name == NULL)
        return missing(error, path, "the function's name");
    if (!json_is_string(name) || length == 0 || length > TOOL_MAX_NAME_BYTES ||
        strspn(json_string_value(name), letters) != length)
        return json_refuse(error, path, name, json_is_string(name), "a name of 1 to 64 letters, digits, '_' and '-'");
    if (has_tool(tools, name))
        return json_refuse(error, path, name, true, "another name than those of the other tools");
    return true;
}

static bool check_parameters(const json_t *parameters, const char *path, struct api_error *error)
{
    if (parameters == NULL)
        return true;
    if (!json_is_object(parameters))
        return json_refuse(error, path, parameters, false, "a JSON schema of the type object");
    const json_t *type = json_field(parameters, "type");
    if (type == NULL || json_is_text(type, "object"))
        return true;
    char where[PATH_BYTES];
    snprintf(where, sizeof where, "%s.type", path);
    return json_refuse(error, where, type, json_is_string(type), "\"object\"");
}

bool tools_add(json_t *tools, const json_t *function, const char *path, struct api_error *error)
{
    char where[PATH_BYTES];
    const json_t *name = json_field(function, "name"), *description = json_field(function, "description"),
                 *strict = json_field(function, "strict");
    snprintf(where, sizeof where, "%s.name", path);
    if (!check_name(tools, name, where, error))
        return false;
    snprintf(where, sizeof where, "%s.description", path);
    if (description != NULL && !json_is_string(description))
        return json_refuse(error, where, description, false, "a string");
    snprintf(where, sizeof where, "%s.strict", path);
    if (strict != NULL && !json_is_boolean(strict))
        return json_refuse(error, where, strict, false, "true or false");
    snprintf(where, sizeof where, "%s.parameters", path);
    json_t *parameters = json_field(function, "parameters");
    if (!check_parameters(parameters, where, error))
        return false;
    json_t *copy = json_pack("{s:O}", "name", name);
    bool ok = copy != NULL &&
              (description == NULL || json_object_set(copy, "description", (json_t *)description) == 0) &&
              json_object_set_new(copy, "parameters",
                                  parameters != NULL ? json_incref(parameters)
                                                     : json_pack("{s:s, s:{}}", "type", "object", "properties")) == 0;
    if (ok)
        return json_array_append_new(tools, json_pack("{s:s, s:o, s:b}", "type", "function", "function", copy, "strict",
                                                      json_is_true(strict))) == 0 ||
               out_of_memory(error);
    json_decref(copy);
    return out_of_memory(error);
}

/* ---- lists of them ---- */

static bool read_tool(json_t *tools, const json_t *tool, const char *path, struct api_error *error)
{
    char where[PATH_BYTES];
    if (!json_is_object(tool))
        return json_refuse(error, path, tool, false, "an object with type and function");
    const json_t *type = json_field(tool, "type"), *function = json_field(tool, "function");
    snprintf(where, sizeof where, "%s.type", path);
    if (type == NULL)
        return missing(error, where, "\"function\"");
    if (!json_is_string(type))
        return json_refuse(error, where, type, false, "\"function\"");
    if (!json_is_text(type, "function"))
        return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, where,
                             "%s: tools of the type %.40s are not supported; only functions are", where,
                             json_string_value(type));
    snprintf(where, sizeof where, "%s.function", path);
    if (function == NULL)
        return missing(error, where, "an object with name, description and parameters");
    if (!json_is_object(function))
        return json_refuse(error, where, function, false, "an object with name, description and parameters");
    return tools_add(tools, function, where, error);
}

static bool read_tools(struct tool_fields *fields, const json_t *object, struct api_error *error)
{
    const json_t *list = json_field(object, "tools");
    if (list == NULL || (json_is_array(list) && json_array_size(list) == 0))
        return true;
    if (!json_is_array(list))
        return json_refuse(error, "tools", list, false, "an array of tools");
    if (json_array_size(list) > TOOLS_MAX)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "tools", "tools may have at most %d entries, not %zu",
                             TOOLS_MAX, json_array_size(list));
    fields->tools = json_array();
    if (fields->tools == NULL)
        return out_of_memory(error);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "tools[%zu]", i);
        if (!read_tool(fields->tools, json_array_get(list, i), path, error))
            return false;
    }
    fields->choice = TOOL_CHOICE_AUTO;
    return true;
}

/* ---- the choice ---- */

bool tool_choice_set_name(struct tool_fields *fields, const json_t *name, const char *path, struct api_error *error)
{
    if (name == NULL)
        return missing(error, path, "the name of one of the tools");
    if (!has_tool(fields->tools, name))
        return json_refuse(error, path, name, json_is_string(name), "the name of one of the tools");
    free(fields->name);
    fields->name = strdup(json_string_value(name));
    fields->choice = TOOL_CHOICE_NAMED;
    return fields->name != NULL || out_of_memory(error);
}

bool tool_choice_set_word(struct tool_fields *fields, const json_t *choice, const char *path, struct api_error *error)
{
    static const struct {
        const char *name;
        enum tool_choice choice;
    } words[] = {{"auto", TOOL_CHOICE_AUTO}, {"none", TOOL_CHOICE_NONE}, {"required", TOOL_CHOICE_REQUIRED}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!json_is_text(choice, words[i].name))
            continue;
        if (words[i].choice == TOOL_CHOICE_REQUIRED && fields->tools == NULL)
            return api_error_set(error, API_ERROR_INVALID_VALUE, path, "%s may only be required when there are tools",
                                 path);
        if (fields->tools != NULL)
            fields->choice = words[i].choice;
        return true;
    }
    return json_refuse(error, path, choice, json_is_string(choice),
                       "auto, none, required or an object that names a function");
}

static bool read_choice(struct tool_fields *fields, const json_t *object, struct api_error *error)
{
    const json_t *choice = json_field(object, "tool_choice");
    if (choice == NULL)
        return true;
    if (!json_is_object(choice))
        return tool_choice_set_word(fields, choice, "tool_choice", error);
    const json_t *type = json_field(choice, "type"), *function = json_field(choice, "function");
    if (!json_is_text(type, "function") || !json_is_object(function))
        return json_refuse(error, "tool_choice", choice, true,
                           "{\"type\": \"function\", \"function\": {\"name\": NAME}}");
    return tool_choice_set_name(fields, json_field(function, "name"), "tool_choice.function.name", error);
}

/* ---- all ---- */

bool tool_fields_read(struct tool_fields *fields, const json_t *object, struct api_error *error)
{
    *fields = (struct tool_fields){.choice = TOOL_CHOICE_NONE, .parallel = true};
    return read_tools(fields, object, error) && read_choice(fields, object, error) &&
           json_read_bool(object, "parallel_tool_calls", &fields->parallel, error);
}

void tool_fields_clear(struct tool_fields *fields)
{
    json_decref(fields->tools);
    free(fields->name);
    memset(fields, 0, sizeof *fields);
}

json_t *tool_fields_offered(const struct tool_fields *fields)
{
    return fields->choice != TOOL_CHOICE_NONE ? fields->tools : NULL;
}

bool tool_fields_demand_call(const struct tool_fields *fields)
{
    return fields->choice == TOOL_CHOICE_REQUIRED || fields->choice == TOOL_CHOICE_NAMED;
}

bool tool_fields_refuse_stop(const struct tool_fields *fields, int n_stops, struct api_error *error)
{
    return n_stops == 0 || !tool_fields_demand_call(fields) ||
           api_error_set(error, API_ERROR_INVALID_VALUE, "stop",
                         "stop may not be given where a tool must be called: the call could be cut");
}
