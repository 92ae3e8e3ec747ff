#include "proto/grammar_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_reader.h"

static bool out_of_memory(struct api_error *error)
{
    return api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
}

static bool set_json(struct grammar_fields *fields, enum text_grammar_kind kind, const json_t *value,
                     struct api_error *error)
{
    fields->kind = kind;
    fields->text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (fields->text == NULL)
        return out_of_memory(error);
    fields->length = strlen(fields->text);
    return true;
}

/* A schema: an object or a boolean. */
static bool set_schema(struct grammar_fields *fields, const json_t *schema, struct api_error *error)
{
    if (schema == NULL)
        return api_error_set(error, API_ERROR_MISSING_PARAMETER, fields->path, "%s is required: a JSON Schema",
                             fields->path);
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return json_refuse(error, fields->path, schema, false, "a JSON Schema, an object");
    return set_json(fields, TEXT_GRAMMAR_JSON_SCHEMA, schema, error);
}

static bool set_text(struct grammar_fields *fields, enum text_grammar_kind kind, const json_t *value,
                     struct api_error *error)
{
    if (value == NULL)
        return api_error_set(error, API_ERROR_MISSING_PARAMETER, fields->path, "%s is required: a string",
                             fields->path);
    if (!json_is_string(value) || json_string_length(value) == 0)
        return json_refuse(error, fields->path, value, json_is_string(value), "a string that is not empty");
    fields->kind = kind;
    fields->text = json_copy_string(value, &fields->length);
    return fields->text != NULL || out_of_memory(error);
}

static const json_t *format_type(const json_t *format, const char *path, char *type_path, size_t capacity,
                                 struct api_error *error)
{
    snprintf(type_path, capacity, "%s.type", path);
    const json_t *type = json_field(format, "type");
    if (type == NULL)
        api_error_set(error, API_ERROR_MISSING_PARAMETER, type_path, "%s is required", type_path);
    else if (!json_is_string(type))
        json_refuse(error, type_path, type, false, "a string");
    else
        return type;
    return NULL;
}

static bool read_grammar(struct grammar_fields *fields, const json_t *grammar, struct api_error *error)
{
    char type_path[64];
    if (!json_is_object(grammar))
        return json_refuse(error, "grammar", grammar, false, "an object with type and value");
    const json_t *type = format_type(grammar, "grammar", type_path, sizeof type_path, error);
    if (type == NULL)
        return false;
    const char *name = json_string_value(type);
    const json_t *value = json_field(grammar, "value");
    fields->is_given = fields->is_own = true;
    snprintf(fields->path, sizeof fields->path, "grammar.value");
    if (strcmp(name, "json_schema") == 0)
        return set_schema(fields, value, error);
    if (strcmp(name, "regex") == 0)
        return set_text(fields, TEXT_GRAMMAR_REGEX, value, error);
    if (strcmp(name, "lark") == 0)
        return set_text(fields, TEXT_GRAMMAR_LARK, value, error);
    if (strcmp(name, "json_object") != 0)
        return json_refuse(error, type_path, type, true, "json_schema, json_object, regex or lark");
    fields->kind = TEXT_GRAMMAR_JSON_OBJECT;
    if (value != NULL)
        return api_error_set(error, API_ERROR_INVALID_VALUE, fields->path,
                             "grammar.value must not be given with the type json_object");
    return true;
}

static bool check_name(const json_t *format, const char *path, struct api_error *error)
{
    char name_path[64];
    snprintf(name_path, sizeof name_path, "%s.name", path);
    const json_t *name = json_field(format, "name"), *strict = json_field(format, "strict");
    if (name == NULL)
        return api_error_set(error, API_ERROR_MISSING_PARAMETER, name_path, "%s is required: a name of the schema",
                             name_path);
    if (!json_is_string(name))
        return json_refuse(error, name_path, name, false, "a string");
    snprintf(name_path, sizeof name_path, "%s.strict", path);
    if (strict != NULL && !json_is_boolean(strict)) /* a schema is kept to in any case */
        return json_refuse(error, name_path, strict, false, "true or false");
    return true;
}

/* holder: of name and schema, at holder_path. */
static bool read_named_schema(struct grammar_fields *fields, const json_t *holder, const char *holder_path,
                              struct api_error *error)
{
    if (!check_name(holder, holder_path, error))
        return false;
    snprintf(fields->path, sizeof fields->path, "%s.schema", holder_path);
    fields->is_given = true;
    return set_schema(fields, json_field(holder, "schema"), error);
}

/* wrapped: name and schema stand in an object of their own. */
static bool read_format(struct grammar_fields *fields, const json_t *format, const char *path, bool wrapped,
                        struct api_error *error)
{
    char type_path[64], holder_path[64];
    if (!json_is_object(format))
        return json_refuse(error, path, format, false, "an object with a type");
    const json_t *type = format_type(format, path, type_path, sizeof type_path, error);
    if (type == NULL)
        return false;
    const char *name = json_string_value(type);
    if (strcmp(name, "text") == 0)
        return true;
    if (strcmp(name, "json_object") == 0) {
        fields->is_given = true;
        fields->kind = TEXT_GRAMMAR_JSON_OBJECT;
        snprintf(fields->path, sizeof fields->path, "%s", path);
        return true;
    }
    if (strcmp(name, "json_schema") != 0)
        return json_refuse(error, type_path, type, true, "text, json_object or json_schema");
    if (!wrapped)
        return read_named_schema(fields, format, path, error);
    snprintf(holder_path, sizeof holder_path, "%s.json_schema", path);
    const json_t *holder = json_field(format, "json_schema");
    if (holder == NULL)
        return api_error_set(error, API_ERROR_MISSING_PARAMETER, holder_path, "%s is required: name and schema",
                             holder_path);
    if (!json_is_object(holder))
        return json_refuse(error, holder_path, holder, false, "an object with name and schema");
    return read_named_schema(fields, holder, holder_path, error);
}

bool grammar_fields_read(struct grammar_fields *fields, const json_t *object, struct api_error *error)
{
    memset(fields, 0, sizeof *fields);
    const json_t *format = json_field(object, "response_format"), *grammar = json_field(object, "grammar");
    if (format != NULL && !read_format(fields, format, "response_format", true, error))
        return false;
    if (grammar != NULL && fields->is_given)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "grammar",
                             "grammar may not be given together with a response_format other than text");
    return grammar == NULL || read_grammar(fields, grammar, error);
}

bool grammar_fields_read_format(struct grammar_fields *fields, const json_t *format, const char *path,
                                struct api_error *error)
{
    memset(fields, 0, sizeof *fields);
    return format == NULL || json_is_null(format) || read_format(fields, format, path, false, error);
}

void grammar_fields_clear(struct grammar_fields *fields)
{
    free(fields->text);
    memset(fields, 0, sizeof *fields);
}

bool grammar_fields_set_turn(struct grammar_fields *fields, const json_t *turn, const char *path,
                             struct api_error *error)
{
    memset(fields, 0, sizeof *fields);
    fields->is_given = true;
    snprintf(fields->path, sizeof fields->path, "%s", path);
    return turn != NULL ? set_json(fields, TEXT_GRAMMAR_TURN, turn, error) : out_of_memory(error);
}

bool grammar_fields_refuse_stop(const struct grammar_fields *fields, int n_stops, struct api_error *error)
{
    if (!fields->is_given || n_stops == 0)
        return true;
    return api_error_set(error, API_ERROR_INVALID_VALUE, "stop",
                         "stop may not be given together with a grammar or response_format: a text that is cut would "
                         "not match");
}
