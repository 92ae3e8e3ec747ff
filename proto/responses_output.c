#include "proto/responses_output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/response_json.h"
#include "proto/sse.h"

enum item_kind {
    ITEM_NONE,
    ITEM_REASONING,
    ITEM_MESSAGE,
    ITEM_CALL,
};

/* type, prefix of its ids, and the events of its text */
static const struct {
    const char *type, *prefix, *delta, *done;
} kinds[] = {
    [ITEM_NONE] = {"", "", "", ""},
    [ITEM_REASONING] = {"reasoning", "rs", "response.reasoning_text.delta", "response.reasoning_text.done"},
    [ITEM_MESSAGE] = {"message", "msg", "response.output_text.delta", "response.output_text.done"},
    [ITEM_CALL] = {"function_call", "fc", "response.function_call_arguments.delta",
                   "response.function_call_arguments.done"},
};

struct responses_output {
    json_t *head; /* owned: what a response has from its start to its end */
    json_t *items; /* owned: those that are whole */
    json_t *response; /* owned: once ended */
    responses_consumer *consumer;
    void *context;
    json_int_t sequence; /* of the next event */
    /* The item that is being written. */
    enum item_kind kind;
    char id[64];
    char *call_id, *name; /* owned: of a call */
    char *text; /* owned */
    size_t length, capacity;
};

/* ---- creation ---- */

static json_t *head_value(const struct response_head *head, const json_t *echo)
{
    json_t *value =
        json_pack("{s:s, s:s, s:I, s:s, s:n, s:n, s:n, s:s, s:[], s:n, s:n}", "id", head->id, "object", "response",
                  "created_at", (json_int_t)head->created, "status", "in_progress", "completed_at", "error",
                  "incomplete_details", "model", head->model, "output", "usage", "conversation");
    if (value == NULL || json_object_update(value, (json_t *)echo) == 0)
        return value;
    json_decref(value);
    return NULL;
}

struct responses_output *responses_output_create(const struct responses_output_options *options)
{
    struct responses_output *output = calloc(1, sizeof *output);
    if (output == NULL)
        return NULL;
    output->head = head_value(options->head, options->echo);
    output->items = json_array();
    output->consumer = options->consumer;
    output->context = options->context;
    if (output->head != NULL && output->items != NULL)
        return output;
    responses_output_destroy(output);
    return NULL;
}

void responses_output_destroy(struct responses_output *output)
{
    if (output == NULL)
        return;
    json_decref(output->head);
    json_decref(output->items);
    json_decref(output->response);
    free(output->call_id);
    free(output->name);
    free(output->text);
    free(output);
}

/* ---- events ---- */

/* Type and number, then members (taken). */
static char *event_frame(struct responses_output *output, const char *type, json_t *members, size_t *ret_length)
{
    char *json = NULL, *frame = NULL;
    size_t length = 0;
    json_t *event = json_pack("{s:s, s:I}", "type", type, "sequence_number", output->sequence++);
    if (event != NULL && members != NULL && json_object_update(event, members) == 0)
        json = response_dump(json_incref(event), &length);
    json_decref(event);
    json_decref(members);
    if (json != NULL)
        frame = sse_event(type, json, length, ret_length);
    free(json);
    return frame;
}

static bool send(struct responses_output *output, const char *type, json_t *event)
{
    size_t length = 0;
    char *frame = event_frame(output, type, event, &length);
    return output->consumer(output->context, frame, length);
}

static bool is_streamed(const struct responses_output *output)
{
    return output->consumer != NULL;
}

/* Text that is UTF-8 but for what a cut may have left of a character. */
static json_t *text_value(const struct responses_output *output)
{
    return response_token_text(output->text != NULL ? output->text : "", output->length);
}

/* Where in the output; more is taken. */
static json_t *place(const struct responses_output *output, json_t *more)
{
    json_t *event = json_pack("{s:s, s:i}", "item_id", output->id, "output_index", (int)json_array_size(output->items));
    bool ok = event != NULL && more != NULL && json_object_update(event, more) == 0 &&
              (output->kind == ITEM_CALL || json_object_set_new(event, "content_index", json_integer(0)) == 0);
    json_decref(more);
    if (ok)
        return event;
    json_decref(event);
    return NULL;
}

static json_t *part_value(const struct responses_output *output)
{
    if (output->kind == ITEM_REASONING)
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text_value(output));
    return json_pack("{s:s, s:[], s:[], s:o}", "type", "output_text", "annotations", "logprobs", "text",
                     text_value(output));
}

/* parts is taken. */
static json_t *item_value(const struct responses_output *output, const char *status, json_t *parts)
{
    switch (output->kind) {
    case ITEM_REASONING:
        return json_pack("{s:s, s:s, s:[], s:o, s:n, s:s}", "id", output->id, "type", "reasoning", "summary", "content",
                         parts, "encrypted_content", "status", status);
    case ITEM_MESSAGE:
        return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", output->id, "type", "message", "status", status, "role",
                         "assistant", "content", parts);
    default:
        json_decref(parts);
        return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "id", output->id, "type", "function_call", "status", status,
                         "call_id", output->call_id, "name", output->name, "arguments", text_value(output));
    }
}

static bool send_item(struct responses_output *output, const char *type, json_t *item)
{
    return send(output, type,
                json_pack("{s:i, s:o}", "output_index", (int)json_array_size(output->items), "item", item));
}

/* ---- items ---- */

static bool begin_item(struct responses_output *output, enum item_kind kind, const char *call_id, const char *name,
                       size_t name_length)
{
    const char *response_id = json_string_value(json_object_get(output->head, "id"));
    const char *tail = strchr(response_id, '_');
    output->kind = kind;
    output->length = 0;
    snprintf(output->id, sizeof output->id, "%s_%.40s%x", kinds[kind].prefix, tail != NULL ? tail + 1 : response_id,
             (unsigned)json_array_size(output->items));
    if (kind == ITEM_CALL) {
        free(output->call_id);
        free(output->name);
        output->call_id = strdup(call_id);
        output->name = strndup(name, name_length);
        if (output->call_id == NULL || output->name == NULL)
            return false;
    }
    if (!is_streamed(output))
        return true;
    return send_item(output, "response.output_item.added", item_value(output, "in_progress", json_array())) &&
           (kind == ITEM_CALL ||
            send(output, "response.content_part.added", place(output, json_pack("{s:o}", "part", part_value(output)))));
}

static bool send_done(struct responses_output *output)
{
    enum item_kind kind = output->kind;
    json_t *done = json_pack("{s:o}", kind == ITEM_CALL ? "arguments" : "text", text_value(output));
    bool ok = kind != ITEM_MESSAGE || json_object_set_new(done, "logprobs", json_array()) == 0;
    if (!ok) {
        json_decref(done);
        return false;
    }
    return send(output, kinds[kind].done, place(output, done)) &&
           (kind == ITEM_CALL ||
            send(output, "response.content_part.done", place(output, json_pack("{s:o}", "part", part_value(output)))));
}

static bool end_item(struct responses_output *output, bool incomplete)
{
    if (output->kind == ITEM_NONE)
        return true;
    json_t *item = item_value(output, incomplete ? "incomplete" : "completed",
                              output->kind == ITEM_CALL ? NULL : json_pack("[o]", part_value(output)));
    if (item == NULL)
        return false;
    bool ok = !is_streamed(output) ||
              (send_done(output) && send_item(output, "response.output_item.done", json_incref(item)));
    output->kind = ITEM_NONE;
    return json_array_append_new(output->items, item) == 0 && ok;
}

static bool append(struct responses_output *output, const char *text, size_t length)
{
    size_t needed = output->length + length;
    if (needed > output->capacity) {
        size_t capacity = output->capacity * 2 > needed ? output->capacity * 2 : needed + 64;
        char *grown = realloc(output->text, capacity);
        if (grown == NULL)
            return false;
        output->text = grown;
        output->capacity = capacity;
    }
    if (length > 0)
        memcpy(output->text + output->length, text, length);
    output->length = needed;
    return true;
}

static bool add_text(struct responses_output *output, const char *text, size_t length)
{
    if (!append(output, text, length))
        return false;
    if (!is_streamed(output))
        return true;
    json_t *delta = json_pack("{s:o}", "delta", response_token_text(text, length));
    if (output->kind == ITEM_MESSAGE && json_object_set_new(delta, "logprobs", json_array()) != 0) {
        json_decref(delta);
        return false;
    }
    return send(output, kinds[output->kind].delta, place(output, delta));
}

bool responses_output_add(struct responses_output *output, enum chat_piece_kind kind, const char *text, size_t length,
                          const char *call_id)
{
    if (kind == CHAT_PIECE_TOOL)
        return end_item(output, false) && begin_item(output, ITEM_CALL, call_id, text, length);
    enum item_kind wanted = kind == CHAT_PIECE_REASONING ? ITEM_REASONING
                            : kind == CHAT_PIECE_CONTENT ? ITEM_MESSAGE
                                                         : ITEM_CALL;
    if (output->kind != wanted && !(end_item(output, false) && begin_item(output, wanted, NULL, NULL, 0)))
        return false;
    return add_text(output, text, length);
}

/* ---- the whole ---- */

bool responses_output_begin(struct responses_output *output)
{
    return !is_streamed(output) || (send(output, "response.created", json_pack("{s:O}", "response", output->head)) &&
                                    send(output, "response.in_progress", json_pack("{s:O}", "response", output->head)));
}

static json_t *usage_value(const struct responses_end *end)
{
    const struct response_usage *usage = end->usage;
    return json_pack("{s:I, s:{s:I, s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)usage->prompt_tokens,
                     "input_tokens_details", "cached_tokens", (json_int_t)usage->cached_tokens, "cache_write_tokens",
                     (json_int_t)(usage->prompt_tokens - usage->cached_tokens), "output_tokens",
                     (json_int_t)usage->completion_tokens, "output_tokens_details", "reasoning_tokens",
                     (json_int_t)end->reasoning_tokens, "total_tokens",
                     (json_int_t)(usage->prompt_tokens + usage->completion_tokens));
}

/* The head with changes (taken) and what has come. */
static json_t *response_with(const struct responses_output *output, json_t *changes)
{
    json_t *response = json_copy(output->head);
    if (response != NULL && changes != NULL && json_object_update(response, changes) == 0 &&
        json_object_set(response, "output", output->items) == 0) {
        json_decref(changes);
        return response;
    }
    json_decref(changes);
    json_decref(response);
    return NULL;
}

static json_t *ended_value(const struct responses_output *output, const struct responses_end *end)
{
    json_t *details = end->incomplete ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null();
    json_t *completed = end->incomplete ? json_null() : json_integer((json_int_t)end->completed_at);
    return response_with(output,
                         json_pack("{s:s, s:o, s:o, s:o, s:o}", "status", end->incomplete ? "incomplete" : "completed",
                                   "completed_at", completed, "incomplete_details", details, "usage", usage_value(end),
                                   "timings", response_timings_value(end->timings)));
}

/* An answer without anything is an empty message. */
static bool end_items(struct responses_output *output, bool incomplete)
{
    bool is_empty = output->kind == ITEM_NONE && json_array_size(output->items) == 0;
    return (!is_empty || begin_item(output, ITEM_MESSAGE, NULL, NULL, 0)) && end_item(output, incomplete);
}

bool responses_output_end(struct responses_output *output, const struct responses_end *end)
{
    if (!end_items(output, end->incomplete))
        return false;
    output->response = ended_value(output, end);
    if (output->response == NULL)
        return false;
    return !is_streamed(output) || send(output, end->incomplete ? "response.incomplete" : "response.completed",
                                        json_pack("{s:O}", "response", output->response));
}

char *responses_output_json(const struct responses_output *output, size_t *ret_length)
{
    return response_dump(json_incref(output->response), ret_length);
}

const json_t *responses_output_items(const struct responses_output *output)
{
    return output->items;
}

char *responses_output_fail(struct responses_output *output, const struct api_error *error, size_t *ret_length)
{
    const char *code = error->kind == API_ERROR_QUEUE_FULL   ? "rate_limit_exceeded"
                       : api_error_status(error->kind) < 500 ? "invalid_prompt"
                                                             : "server_error";
    json_t *failure =
        json_pack("{s:s, s:o}", "code", code, "message", response_token_text(error->message, strlen(error->message)));
    json_t *response = response_with(output, json_pack("{s:s, s:o}", "status", "failed", "error", failure));
    return event_frame(output, "response.failed", json_pack("{s:o}", "response", response), ret_length);
}

char *responses_deleted_json(const char *id, size_t *ret_length)
{
    return response_dump(json_pack("{s:s, s:s, s:b}", "id", id, "object", "response", "deleted", 1), ret_length);
}
