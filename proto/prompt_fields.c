#include "proto/prompt_fields.h"

#include <stdio.h>
#include <stdlib.h>

#include "proto/json_reader.h"

static const char forms[] = "a string, an array of strings, an array of token ids or an array of such arrays";

static bool out_of_memory(struct api_error *error)
{
    return api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
}

static bool read_text(struct prompt_field *prompt, const json_t *value, struct api_error *error)
{
    prompt->text = json_copy_string(value, &prompt->length);
    return prompt->text != NULL || out_of_memory(error);
}

static bool read_tokens(struct prompt_field *prompt, const json_t *array, const char *path,
                        const struct request_limits *limits, struct api_error *error)
{
    size_t n = json_array_size(array);
    if (n == 0)
        return json_refuse(error, path, array, true, "an array of at least one token id");
    prompt->tokens = malloc(n * sizeof *prompt->tokens);
    if (prompt->tokens == NULL)
        return out_of_memory(error);
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);
        json_int_t token = json_integer_value(value);
        if (!json_is_integer(value) || token < 0 || token >= limits->n_vocab) {
            char where[64], expected[64];
            snprintf(where, sizeof where, "%s[%zu]", path, i);
            snprintf(expected, sizeof expected, "a token id from 0 to %d", limits->n_vocab - 1);
            return json_refuse(error, where, value, json_is_integer(value), expected);
        }
        prompt->tokens[i] = (int32_t)token;
    }
    prompt->n_tokens = (int32_t)n; /* JSON_MAX_VALUES bounds it */
    return true;
}

/* An array of strings or of arrays; *ret_n counts what there is to clear. */
static bool read_list(struct prompt_field *prompts, int *ret_n, const json_t *array, const struct prompt_form *form,
                      const struct request_limits *limits, struct api_error *error)
{
    size_t n = json_array_size(array);
    bool strings = json_is_string(json_array_get(array, 0));
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);
        char path[64];
        prompt_fields_path(form, true, (int)i, path, sizeof path);
        (*ret_n)++;
        if (strings ? !json_is_string(value) : !json_is_array(value))
            return json_refuse(error, path, value, false,
                               strings ? "a string like the others" : "an array of token ids like the others");
        if (strings ? !read_text(&prompts[i], value, error) : !read_tokens(&prompts[i], value, path, limits, error))
            return false;
    }
    return true;
}

bool prompt_fields_read(struct prompt_field **ret_prompts, int *ret_n, bool *ret_is_list, const json_t *object,
                        const struct prompt_form *form, const struct request_limits *limits, struct api_error *error)
{
    *ret_prompts = NULL;
    *ret_n = 0;
    *ret_is_list = false;
    const json_t *value = json_field(object, form->name);
    if (value == NULL)
        return api_error_set(error, API_ERROR_MISSING_PARAMETER, form->name, "%s is required: %s", form->name, forms);
    if (!json_is_string(value) && !json_is_array(value))
        return json_refuse(error, form->name, value, false, forms);
    const json_t *first = json_array_get(value, 0);
    size_t n = 1;
    if (first != NULL && !json_is_number(first)) {
        n = json_array_size(value);
        *ret_is_list = true;
        if (!json_is_string(first) && !json_is_array(first)) {
            char path[64];
            return json_refuse(error, prompt_fields_path(form, true, 0, path, sizeof path), first, false,
                               "a string, a token id or an array of token ids");
        }
        if (n > (size_t)form->max_entries)
            return api_error_set(error, API_ERROR_INVALID_VALUE, form->name, "%s may have at most %d entries, not %zu",
                                 form->name, form->max_entries, n);
    }
    *ret_prompts = calloc(n, sizeof **ret_prompts);
    if (*ret_prompts == NULL)
        return out_of_memory(error);
    if (*ret_is_list)
        return read_list(*ret_prompts, ret_n, value, form, limits, error);
    *ret_n = 1;
    return json_is_string(value) ? read_text(*ret_prompts, value, error)
                                 : read_tokens(*ret_prompts, value, form->name, limits, error);
}

void prompt_fields_clear(struct prompt_field *prompts, int n)
{
    for (int i = 0; i < n; i++) {
        free(prompts[i].text);
        free(prompts[i].tokens);
    }
    free(prompts);
}

const char *prompt_fields_path(const struct prompt_form *form, bool is_list, int i, char *path, size_t capacity)
{
    if (is_list)
        snprintf(path, capacity, "%s[%d]", form->name, i);
    else
        snprintf(path, capacity, "%s", form->name);
    return path;
}
