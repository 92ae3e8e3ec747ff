#include "proto/responses_request.h"

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

static bool unsupported(struct api_error *error, const char *path, const char *why)
{
    return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, path, "%s is not supported: %s", path, why);
}

/* The field as it was given, or null, under its own name. */
static bool echo(struct responses_request *request, const json_t *object, const char *name, struct api_error *error)
{
    json_t *value = json_field(object, name);
    return json_object_set_new(request->echo, name, value != NULL ? json_incref(value) : json_null()) == 0 ||
           out_of_memory(error);
}

/* value is taken. */
static bool tell(struct responses_request *request, const char *name, json_t *value, struct api_error *error)
{
    return json_object_set_new(request->echo, name, value) == 0 || out_of_memory(error);
}

/* ---- what is not supported ---- */

static bool refuse_fields(const json_t *object, struct api_error *error)
{
    static const struct {
        const char *name, *why;
    } fields[] = {
        {"conversation", "use previous_response_id"},
        {"prompt", "there are no prompts to name; write it into input and instructions"},
        {"context_management", "a conversation that grows past the context is refused"},
        {"max_tool_calls", "it limits built-in tools, and there are none"},
        {"moderation", "nothing is moderated"},
        {"access_programs", "there are none"},
        {"image", "the model reads text only"},
        {"background_options", "an answer runs while its client waits"},
        {"prompt_cache_options", "sessions stay until their memory is needed, see /v1/sessions"},
        /* What belongs to /v1/chat/completions, where the same is asked for in another way. */
        {"messages", "use input"},
        {"response_format", "use text.format"},
        {"max_tokens", "use max_output_tokens"},
        {"max_completion_tokens", "use max_output_tokens"},
        {"reasoning_effort", "use reasoning.effort"},
        {"verbosity", "say it in the instructions"},
        {"functions", "use tools"},
    };
    static const struct usual_field choices[] = {
        {"truncation", {"disabled"}, "nothing of a conversation is dropped"},
        {"service_tier", {"auto", "default"}, "there is one; see priority"},
        {"prompt_cache_retention", {"in-memory", "in_memory"}, "sessions stay until their memory is needed"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!request_refuse_field(object, fields[i].name, fields[i].why, error))
            return false;
    }
    bool background = false;
    if (!json_read_bool(object, "background", &background, error))
        return false;
    if (background)
        return unsupported(error, "background", "an answer runs while its client waits");
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        if (!request_refuse_unusual(object, &choices[i], error))
            return false;
    }
    return true;
}

/* What can be included that npud has nothing of is included as it is: none. */
static bool check_includable(const char *name, const char *path, struct api_error *error)
{
    static const char *const nothing[] = {"file_search_call.results",
                                          "web_search_call.results",
                                          "web_search_call.action.sources",
                                          "message.input_image.image_url",
                                          "computer_call_output.output.image_url",
                                          "code_interpreter_call.outputs"};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++)
        if (strcmp(name, nothing[i]) == 0)
            return true;
    if (strcmp(name, "reasoning.encrypted_content") == 0)
        return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, path,
                             "%s: reasoning.encrypted_content is not supported: thinking is given as it is", path);
    if (strcmp(name, "message.output_text.logprobs") == 0)
        return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, path,
                             "%s: message.output_text.logprobs is not supported: use logprobs of "
                             "/v1/chat/completions",
                             path);
    return api_error_set(error, API_ERROR_INVALID_VALUE, path, "%s: there is no %.60s to include", path, name);
}

static bool read_include(const json_t *object, struct api_error *error)
{
    const json_t *include = json_field(object, "include");
    if (include != NULL && !json_is_array(include))
        return json_refuse(error, "include", include, false, "an array of strings");
    for (size_t i = 0; i < json_array_size(include); i++) {
        const json_t *name = json_array_get(include, i);
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "include[%zu]", i);
        if (!json_is_string(name))
            return json_refuse(error, path, name, false, "a string");
        if (!check_includable(json_string_value(name), path, error))
            return false;
    }
    int64_t top_logprobs = 0;
    if (!json_read_integer(object, "top_logprobs", 0, REQUEST_MAX_LOGPROBS, &top_logprobs, error))
        return false;
    return top_logprobs == 0 || unsupported(error, "top_logprobs", "use logprobs of /v1/chat/completions");
}

bool responses_query_check(const char *query, struct api_error *error)
{
    while (query != NULL && *query != '\0') {
        size_t length = strcspn(query, "&");
        const char *equals = memchr(query, '=', length);
        size_t name_length = equals != NULL ? (size_t)(equals - query) : length;
        char name[64], value[64] = "";
        snprintf(name, sizeof name, "%.*s", (int)(name_length < 60 ? name_length : 60), query);
        if (equals != NULL)
            snprintf(value, sizeof value, "%.*s", (int)(length - name_length - 1 < 60 ? length - name_length - 1 : 60),
                     equals + 1);
        if (strcmp(name, "stream") == 0 && strcmp(value, "false") != 0 && strcmp(value, "") != 0)
            return unsupported(error, "stream", "a stream that has ended is not given again; ask without it");
        if (strcmp(name, "starting_after") == 0)
            return unsupported(error, "starting_after", "a stream that has ended is not given again");
        if (strncmp(name, "include", 7) == 0 && strcmp(name, "include_obfuscation") != 0 &&
            !check_includable(value, "include", error))
            return false;
        query += length + (query[length] == '&');
    }
    return true;
}

/* ---- names ---- */

static size_t characters(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static bool read_metadata(struct responses_request *request, const json_t *object, struct api_error *error)
{
    json_t *metadata = json_field(object, "metadata"), *value;
    const char *name;
    if (metadata == NULL)
        return tell(request, "metadata", json_object(), error);
    if (!json_is_object(metadata))
        return json_refuse(error, "metadata", metadata, false, "an object of strings");
    if (json_object_size(metadata) > RESPONSES_MAX_METADATA)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "metadata", "metadata may have at most %d entries",
                             RESPONSES_MAX_METADATA);
    json_object_foreach(metadata, name, value)
    {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "metadata.%.70s", name);
        if (characters(name) > RESPONSES_MAX_METADATA_NAME)
            return api_error_set(error, API_ERROR_INVALID_VALUE, "metadata",
                                 "metadata: a name may have at most %d characters", RESPONSES_MAX_METADATA_NAME);
        if (!json_is_string(value) || characters(json_string_value(value)) > RESPONSES_MAX_METADATA_VALUE)
            return json_refuse(error, path, value, json_is_string(value), "a string of at most 512 characters");
    }
    return tell(request, "metadata", json_incref(metadata), error);
}

static bool read_names(struct responses_request *request, const json_t *object, struct api_error *error)
{
    static const char *const only_told[] = {"user", "safety_identifier"};
    char *checked = NULL; /* any model name is served by the loaded model, but it must be a name */
    bool ok = json_read_string(object, "model", REQUEST_MAX_NAME_BYTES, &checked, error);
    for (size_t i = 0; ok && i < sizeof only_told / sizeof *only_told; i++)
        ok = json_read_string(object, only_told[i], REQUEST_MAX_NAME_BYTES, &checked, error) &&
             echo(request, object, only_told[i], error);
    free(checked);
    return ok &&
           json_read_string(object, "prompt_cache_key", REQUEST_MAX_NAME_BYTES, &request->prompt_cache_key, error) &&
           json_read_string(object, "previous_response_id", REQUEST_MAX_NAME_BYTES, &request->previous_response_id,
                            error) &&
           echo(request, object, "prompt_cache_key", error) && echo(request, object, "previous_response_id", error);
}

/* ---- what is said ---- */

static bool read_input(struct responses_request *request, const json_t *object, struct api_error *error)
{
    json_t *input = json_field(object, "input");
    if (input == NULL)
        return api_error_set(error, API_ERROR_MISSING_PARAMETER, "input",
                             "input is required: a string or an array of items");
    if (json_is_string(input))
        request->input = json_pack("[{s:s, s:s, s:O}]", "type", "message", "role", "user", "content", input);
    else if (json_array_size(input) > 0)
        request->input = json_incref(input);
    else
        return json_refuse(error, "input", input, json_is_array(input), "a string or an array of at least one item");
    return request->input != NULL || out_of_memory(error);
}

static bool read_instructions(struct responses_request *request, const json_t *object, struct api_error *error)
{
    json_t *instructions = json_field(object, "instructions");
    if (instructions != NULL && !json_is_string(instructions))
        return json_refuse(error, "instructions", instructions, false, "a string");
    request->instructions = json_incref(instructions);
    return echo(request, object, "instructions", error);
}

static bool read_reasoning(struct responses_request *request, const json_t *object, struct api_error *error)
{
    static const char *const summaries[] = {"summary", "generate_summary"};
    json_t *reasoning = json_field(object, "reasoning");
    if (reasoning != NULL && !json_is_object(reasoning))
        return json_refuse(error, "reasoning", reasoning, false, "an object");
    json_t *effort = json_field(reasoning, "effort");
    for (size_t i = 0; i < sizeof summaries / sizeof *summaries; i++) {
        const json_t *summary = json_field(reasoning, summaries[i]);
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "reasoning.%s", summaries[i]);
        if (summary != NULL && !json_is_text(summary, "auto"))
            return unsupported(error, path, "thinking is given whole; leave it out or use auto");
    }
    return template_fields_read(&request->template, object, error) &&
           template_fields_set_effort(&request->template, effort, "reasoning.effort", error) &&
           tell(request, "reasoning",
                json_pack("{s:o, s:n}", "effort", effort != NULL ? json_incref(effort) : json_null(), "summary"),
                error);
}

/* ---- tools ---- */

static bool read_tool(struct responses_request *request, const json_t *tool, const char *path, struct api_error *error)
{
    char where[PATH_BYTES];
    if (!json_is_object(tool))
        return json_refuse(error, path, tool, false, "an object with type and name");
    const json_t *type = json_field(tool, "type");
    snprintf(where, sizeof where, "%s.type", path);
    if (type == NULL)
        return api_error_set(error, API_ERROR_MISSING_PARAMETER, where, "%s is required: \"function\"", where);
    if (!json_is_string(type))
        return json_refuse(error, where, type, false, "\"function\"");
    if (!json_is_text(type, "function"))
        return api_error_set(error, API_ERROR_UNSUPPORTED_PARAMETER, where,
                             "%s: tools of the type %.40s are not supported; only functions are", where,
                             json_string_value(type));
    return tools_add(request->tools.tools, tool, path, error);
}

/* As OpenAI repeats them: every member is there. */
static json_t *told_tool(const json_t *tool)
{
    static const char *const names[] = {"name", "description", "parameters"};
    json_t *told = json_pack("{s:s, s:b}", "type", "function", "strict", json_is_true(json_field(tool, "strict")));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *value = json_field(tool, names[i]);
        json_object_set_new(told, names[i], value != NULL ? json_incref(value) : json_null());
    }
    return told;
}

static bool read_tools(struct responses_request *request, const json_t *object, struct api_error *error)
{
    const json_t *list = json_field(object, "tools");
    json_t *told = json_array();
    if (!tell(request, "tools", told, error))
        return false;
    if (list == NULL || (json_is_array(list) && json_array_size(list) == 0))
        return true;
    if (!json_is_array(list))
        return json_refuse(error, "tools", list, false, "an array of tools");
    if (json_array_size(list) > TOOLS_MAX)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "tools", "tools may have at most %d entries, not %zu",
                             TOOLS_MAX, json_array_size(list));
    request->tools.tools = json_array();
    if (request->tools.tools == NULL)
        return out_of_memory(error);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char path[PATH_BYTES];
        const json_t *tool = json_array_get(list, i);
        snprintf(path, sizeof path, "tools[%zu]", i);
        if (!read_tool(request, tool, path, error))
            return false;
        if (json_array_append_new(told, told_tool(tool)) != 0)
            return out_of_memory(error);
    }
    request->tools.choice = TOOL_CHOICE_AUTO;
    return true;
}

static bool read_choice(struct responses_request *request, const json_t *object, struct api_error *error)
{
    json_t *choice = json_field(object, "tool_choice");
    request->tools.parallel = true;
    if (!json_read_bool(object, "parallel_tool_calls", &request->tools.parallel, error) ||
        !tell(request, "parallel_tool_calls", json_boolean(request->tools.parallel), error) ||
        !tell(request, "tool_choice", choice != NULL ? json_incref(choice) : json_string("auto"), error))
        return false;
    if (choice == NULL)
        return true;
    if (!json_is_object(choice))
        return tool_choice_set_word(&request->tools, choice, "tool_choice", error);
    const json_t *type = json_field(choice, "type");
    if (!json_is_text(type, "function"))
        return api_error_set(
            error, API_ERROR_UNSUPPORTED_PARAMETER, "tool_choice.type",
            "tool_choice may only be auto, none, required or {\"type\": \"function\", \"name\": NAME}");
    return tool_choice_set_name(&request->tools, json_field(choice, "name"), "tool_choice.name", error);
}

/* ---- how it is answered ---- */

static bool read_text(struct responses_request *request, const json_t *object, struct api_error *error)
{
    json_t *text = json_field(object, "text");
    if (text != NULL && !json_is_object(text))
        return json_refuse(error, "text", text, false, "an object");
    json_t *format = json_field(text, "format"), *verbosity = json_field(text, "verbosity");
    if (verbosity != NULL && !json_is_text(verbosity, "medium"))
        return unsupported(error, "text.verbosity", "say it in the instructions");
    if (!grammar_fields_read(&request->grammar, object, error)) /* npud's own field; response_format is not there */
        return false;
    if (request->grammar.is_given && format != NULL)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "grammar",
                             "grammar may not be given together with text.format");
    if (format != NULL && !grammar_fields_read_format(&request->grammar, format, "text.format", error))
        return false;
    json_t *told = format != NULL ? json_incref(format) : json_pack("{s:s}", "type", "text");
    return tell(request, "text", json_pack("{s:o, s:s}", "format", told, "verbosity", "medium"), error);
}

static bool read_sampling(struct responses_request *request, const json_t *object, const struct request_limits *limits,
                          struct api_error *error)
{
    return sampling_fields_read(&request->sampling, object, limits, error) &&
           tell(request, "temperature", json_real(request->sampling.temperature), error) &&
           tell(request, "top_p", json_real(request->sampling.top_p), error) &&
           tell(request, "top_logprobs", json_integer(0), error) && stop_fields_read(&request->stop, object, error) &&
           grammar_fields_refuse_stop(&request->grammar, request->stop.n_stops, error) &&
           tool_fields_refuse_stop(&request->tools, request->stop.n_stops, error) &&
           queue_fields_read(&request->queue, object, error);
}

static bool read_limit(struct responses_request *request, const json_t *object, struct api_error *error)
{
    int64_t max_tokens = -1;
    if (!json_read_integer(object, "max_output_tokens", 1, INT32_MAX, &max_tokens, error))
        return false;
    request->max_tokens = (int32_t)max_tokens;
    return echo(request, object, "max_output_tokens", error) && tell(request, "max_tool_calls", json_null(), error);
}

static bool read_stream(struct responses_request *request, const json_t *object, struct api_error *error)
{
    const json_t *options = json_field(object, "stream_options");
    bool pads = false;
    if (!json_read_bool(object, "stream", &request->stream, error))
        return false;
    if (options != NULL && !request->stream)
        return api_error_set(error, API_ERROR_INVALID_VALUE, "stream_options",
                             "stream_options may only be given with stream: true");
    if (options != NULL && !json_is_object(options))
        return json_refuse(error, "stream_options", options, false, "an object");
    const json_t *obfuscation = json_field(options, "include_obfuscation");
    if (obfuscation != NULL && !json_is_boolean(obfuscation))
        return json_refuse(error, "stream_options.include_obfuscation", obfuscation, false, "true or false");
    pads = json_is_true(obfuscation);
    return !pads || unsupported(error, "stream_options.include_obfuscation", "events are not padded");
}

static bool read_store(struct responses_request *request, const json_t *object, struct api_error *error)
{
    request->store = true;
    return json_read_bool(object, "store", &request->store, error) &&
           tell(request, "store", json_boolean(request->store), error) &&
           tell(request, "background", json_false(), error) &&
           tell(request, "service_tier", json_string("default"), error) &&
           tell(request, "truncation", json_string("disabled"), error);
}

static bool read_request(struct responses_request *request, const json_t *object, const struct request_limits *limits,
                         struct api_error *error)
{
    return refuse_fields(object, error) && read_include(object, error) && read_names(request, object, error) &&
           read_input(request, object, error) && read_instructions(request, object, error) &&
           read_metadata(request, object, error) && read_tools(request, object, error) &&
           read_choice(request, object, error) && read_reasoning(request, object, error) &&
           read_text(request, object, error) && read_limit(request, object, error) &&
           read_sampling(request, object, limits, error) && read_stream(request, object, error) &&
           read_store(request, object, error);
}

bool responses_request_decode(struct responses_request *request, const char *body, size_t length,
                              const struct request_limits *limits, struct api_error *error)
{
    memset(request, 0, sizeof *request);
    request->tools.choice = TOOL_CHOICE_NONE;
    json_t *object;
    if (!json_read_body(&object, body, length, error))
        return false;
    request->echo = json_object();
    bool ok = request->echo != NULL ? read_request(request, object, limits, error) : out_of_memory(error);
    json_decref(object);
    if (!ok)
        responses_request_clear(request);
    return ok;
}

void responses_request_clear(struct responses_request *request)
{
    json_decref(request->input);
    json_decref(request->instructions);
    json_decref(request->echo);
    tool_fields_clear(&request->tools);
    template_fields_clear(&request->template);
    grammar_fields_clear(&request->grammar);
    sampling_fields_clear(&request->sampling);
    stop_fields_clear(&request->stop);
    free(request->previous_response_id);
    free(request->prompt_cache_key);
    memset(request, 0, sizeof *request);
}
