/* POST /v1/responses: from items to a generation, and from what it writes to items. What an earlier response has
 * stored is brought first, then the conversation is made of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/answer.h"
#include "daemon/chat_constraint.h"
#include "daemon/chat_format.h"
#include "daemon/chat_history.h"
#include "daemon/chat_prompt.h"
#include "daemon/chat_turn.h"
#include "daemon/service_internal.h"
#include "daemon/stored_responses.h"
#include "daemon/tokenizer.h"
#include "proto/json_reader.h"
#include "proto/responses_items.h"
#include "proto/responses_output.h"
#include "proto/responses_request.h"

enum {
    MAX_WANTED = 64,
    PATH_BYTES = 64,
};

/* A stored response that the request refers to. */
struct wanted_response {
    struct response_id id;
    struct response_bytes *bytes; /* held; NULL: not brought */
    json_t *response; /* owned; NULL: not parsed */
};

struct responses {
    struct answer answer; /* first */
    struct responses_request request;
    struct response_id id;
    bool is_decoded;
    struct wanted_response wanted[MAX_WANTED]; /* the previous one first, if the request names one */
    int n_wanted, n_fetched;
    json_t *input; /* owned: the items, references replaced by what they stand for */
    json_t *messages; /* owned: the conversation without instructions */
    struct chat_prompt prompt;
    struct chat_turn turn;
    struct responses_output *output; /* owned */
};

/* ---- preparing, on a worker thread: what the request refers to ---- */

static bool want(struct responses *responses, const struct response_id *id)
{
    for (int i = 0; i < responses->n_wanted; i++)
        if (response_id_equal(&responses->wanted[i].id, id))
            return true;
    if (responses->n_wanted == MAX_WANTED)
        return false;
    responses->wanted[responses->n_wanted++].id = *id;
    return true;
}

static bool no_previous(struct responses *responses)
{
    return api_error_set(&responses->answer.error, API_ERROR_PREVIOUS_RESPONSE_NOT_FOUND, "previous_response_id",
                         "there is no response %.100s", responses->request.previous_response_id);
}

static bool no_item(struct responses *responses, size_t index, const char *id)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "input[%zu].id", index);
    return api_error_set(&responses->answer.error, API_ERROR_INVALID_VALUE, path,
                         "%s: there is no item %.100s in a stored response", path, id);
}

static bool list_wanted(struct responses *responses)
{
    const char *previous = responses->request.previous_response_id;
    struct response_id id;
    if (previous != NULL && !(response_id_parse(&id, previous) && strncmp(previous, "resp_", 5) == 0))
        return no_previous(responses);
    if (previous != NULL)
        want(responses, &id);
    for (size_t i = 0; i < json_array_size(responses->request.input); i++) {
        const char *item = responses_item_reference(json_array_get(responses->request.input, i));
        if (item == NULL)
            continue;
        if (!response_id_parse(&id, item))
            return no_item(responses, i, item);
        if (!want(responses, &id))
            return api_error_set(&responses->answer.error, API_ERROR_INVALID_VALUE, "input",
                                 "input may refer to items of at most %d responses", MAX_WANTED);
    }
    return true;
}

static bool decode(struct responses *responses)
{
    struct answer *answer = &responses->answer;
    struct request_limits limits = {.n_vocab = tokenizer_n_vocab(answer->service->model.tokenizer)};
    responses->id = response_id_create();
    response_id_format(answer->id, &responses->id);
    if (!responses_request_decode(&responses->request, answer->body, answer->body_length, &limits, &answer->error))
        return false;
    responses->is_decoded = true;
    return list_wanted(responses);
}

/* ---- preparing: the conversation ---- */

static json_t *parse(const struct response_text *text)
{
    return json_loadb(text->text, text->length, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
}

static bool read_wanted(const struct wanted_response *wanted, struct response_record *record)
{
    struct npu_error error;
    return wanted->bytes != NULL &&
           response_record_decode(record, wanted->bytes->bytes, wanted->bytes->length, &error) == NPU_OK;
}

/* What was generated then may be cached, so the prompt is to begin with the same tokens. */
static void remember_tokens(const struct service *service, const struct response_record *record)
{
    int32_t n_vocab = tokenizer_n_vocab(service->model.tokenizer);
    bool usable = record->model == service->model_identity && record->n_tokens <= (uint32_t)service->model.context;
    for (uint32_t i = 0; usable && i < record->n_tokens; i++)
        usable = record->tokens[i] >= 0 && record->tokens[i] < n_vocab;
    if (usable)
        chat_history_add(service->chat_history, record->history.text, record->history.length, record->tokens,
                         (int32_t)record->n_tokens);
}

/* What the previous response has left behind, or nothing. */
static bool begin_conversation(struct responses *responses)
{
    struct response_record record;
    if (responses->request.previous_response_id == NULL) {
        responses->messages = json_array();
        return responses->messages != NULL || answer_out_of_memory(&responses->answer);
    }
    if (!read_wanted(&responses->wanted[0], &record))
        return no_previous(responses);
    responses->messages = parse(&record.messages);
    if (!json_is_array(responses->messages))
        return answer_out_of_memory(&responses->answer); /* it was written by us: nothing else can be wrong */
    remember_tokens(responses->answer.service, &record);
    return true;
}

/* What the response has put out, parsed once. Borrowed; NULL: it is unknown, or memory is out. */
static const json_t *output_of(struct wanted_response *wanted)
{
    struct response_record record;
    if (wanted->response == NULL && read_wanted(wanted, &record))
        wanted->response = parse(&record.response);
    return json_object_get(wanted->response, "output");
}

/* The item that has this id, which ends in its place among the others; a new reference. NULL: there is none. */
static json_t *find_item(struct responses *responses, const char *id)
{
    struct response_id of;
    response_id_parse(&of, id);
    size_t index = strtoul(strchr(id, '_') + 1 + RESPONSE_ID_DIGITS, NULL, 16);
    for (int i = 0; i < responses->n_wanted; i++) {
        if (!response_id_equal(&responses->wanted[i].id, &of))
            continue;
        json_t *item = json_array_get(output_of(&responses->wanted[i]), index);
        return json_is_text(json_object_get(item, "id"), id) ? json_incref(item) : NULL;
    }
    return NULL;
}

static bool resolve_references(struct responses *responses)
{
    const json_t *given = responses->request.input;
    responses->input = json_array();
    for (size_t i = 0; i < json_array_size(given); i++) {
        json_t *item = json_array_get(given, i);
        const char *id = responses_item_reference(item);
        json_t *meant = id != NULL ? find_item(responses, id) : json_incref(item);
        if (meant == NULL)
            return no_item(responses, i, id);
        if (json_array_append_new(responses->input, meant) != 0)
            return answer_out_of_memory(&responses->answer);
    }
    return true;
}

/* The instructions, then the conversation. A new reference; NULL: memory is out. */
static json_t *all_messages(const struct responses *responses)
{
    if (responses->request.instructions == NULL)
        return json_incref(responses->messages);
    json_t *all = json_pack("[{s:s, s:O}]", "role", "system", "content", responses->request.instructions);
    if (all != NULL && json_array_extend(all, responses->messages) == 0)
        return all;
    json_decref(all);
    return NULL;
}

static bool create_prompt(struct responses *responses)
{
    struct answer *answer = &responses->answer;
    if (json_array_size(responses->messages) == 0)
        return api_error_set(&answer->error, API_ERROR_INVALID_VALUE, "input",
                             "input says nothing: there is no message");
    json_t *messages = all_messages(responses);
    if (messages == NULL)
        return answer_out_of_memory(answer);
    struct chat_content content = {.messages = messages,
                                   .tools = tool_fields_offered(&responses->request.tools),
                                   .fields = &responses->request.template,
                                   .messages_field = "input",
                                   .effort_field = "reasoning.effort"};
    bool ok = chat_prompt_create(&responses->prompt, answer->service, &content, &answer->error);
    json_decref(messages);
    if (!ok)
        return false;
    if (responses->prompt.n_tokens > answer->service->model.max_prompt_tokens)
        return answer_prompt_too_long(answer, "input", (size_t)responses->prompt.n_tokens);
    return responses->prompt.n_tokens > 0 || api_error_set(&answer->error, API_ERROR_INVALID_VALUE, "input",
                                                           "the model's chat template makes no text of the input");
}

/* ---- preparing: the generation ---- */

static bool write_event(void *context, char *frame, size_t length)
{
    return answer_write_frame(context, frame, length);
}

static bool create_output(struct responses *responses)
{
    struct answer *answer = &responses->answer;
    struct response_head head = answer_head(answer);
    struct responses_output_options options = {.head = &head,
                                               .echo = responses->request.echo,
                                               .consumer = answer->is_stream ? write_event : NULL,
                                               .context = answer};
    struct chat_turn_options turn = {.format = answer->service->model.chat_format,
                                     .prompt = &responses->prompt,
                                     .with_tools = tool_fields_offered(&responses->request.tools) != NULL,
                                     .parallel = responses->request.tools.parallel,
                                     .is_raw = chat_constraint_is_raw(&responses->request.grammar),
                                     .is_constrained = responses->request.grammar.is_given};
    responses->output = responses_output_create(&options);
    return (responses->output != NULL && chat_turn_init(&responses->turn, &answer->choices[0], &turn)) ||
           answer_out_of_memory(answer);
}

static bool create_choices(struct responses *responses)
{
    const struct responses_request *request = &responses->request;
    struct answer_plan plan = {.sampling = &request->sampling,
                               .stop = &request->stop,
                               .queue = &request->queue,
                               .grammar = &request->grammar,
                               .session_key = request->prompt_cache_key,
                               .keeps_session = request->store,
                               .max_tokens = request->max_tokens,
                               .n_logprobs = -1,
                               .n = 1};
    struct answer_prompt prompt = {responses->prompt.tokens, responses->prompt.n_tokens};
    responses->answer.is_stream = request->stream;
    return answer_create_choices(&responses->answer, &plan, &prompt, 1) && create_output(responses);
}

static bool prepare(struct answer *answer)
{
    struct responses *responses = (struct responses *)answer;
    if (!responses->is_decoded) {
        if (!decode(responses))
            return false;
        answer->awaits = responses->n_wanted > 0;
        if (answer->awaits)
            return true;
    }
    return begin_conversation(responses) && resolve_references(responses) &&
           responses_items_add(responses->messages, responses->input, "input", &answer->error) &&
           create_prompt(responses) &&
           chat_constraint_set(&responses->request.grammar, answer->service->model.chat_format, &responses->prompt,
                               &responses->request.tools, "tools", &answer->error) &&
           create_choices(responses);
}

/* ---- bringing what is stored ---- */

static void fetch(struct answer *answer);

static void take_fetched(void *context, struct response_bytes *bytes)
{
    struct responses *responses = context;
    responses->wanted[responses->n_fetched++].bytes = bytes;
    fetch(&responses->answer);
}

static void fetch(struct answer *answer)
{
    struct responses *responses = (struct responses *)answer;
    if (responses->n_fetched < responses->n_wanted)
        stored_responses_fetch(answer->service, &responses->wanted[responses->n_fetched].id, take_fetched, responses);
    else
        answer_go_on(answer);
}

static void clear(struct answer *answer)
{
    struct responses *responses = (struct responses *)answer;
    for (int i = 0; i < responses->n_wanted; i++) {
        response_bytes_release(responses->wanted[i].bytes);
        json_decref(responses->wanted[i].response);
    }
    json_decref(responses->input);
    json_decref(responses->messages);
    chat_turn_clear(&responses->turn);
    responses_output_destroy(responses->output);
    chat_prompt_clear(&responses->prompt);
    responses_request_clear(&responses->request);
}

/* ---- storing ---- */

static struct response_text text_of(const char *text)
{
    return (struct response_text){text != NULL ? text : "", text != NULL ? strlen(text) : 0};
}

/* Malloc'ed; NULL: memory is out. The answer becomes part of the conversation. */
static void *encode_record(struct responses *responses, size_t *ret_length)
{
    struct api_error error;
    struct chat_prompt joined;
    const json_t *items = responses_output_items(responses->output);
    if (!responses_items_add(responses->messages, items, "output", &error) ||
        !chat_prompt_join(&joined, &responses->prompt, responses->turn.choice))
        return NULL;
    size_t length;
    char *response = responses_output_json(responses->output, &length);
    char *input = json_dumps(responses->input, JSON_COMPACT), *messages = json_dumps(responses->messages, JSON_COMPACT);
    struct response_record record = {.id = responses->id,
                                     .response = text_of(response),
                                     .input = text_of(input),
                                     .messages = text_of(messages),
                                     .history = {joined.text, joined.length},
                                     .tokens = joined.tokens,
                                     .n_tokens = (uint32_t)joined.n_tokens,
                                     .model = responses->answer.service->model_identity};
    void *bytes =
        response != NULL && input != NULL && messages != NULL ? response_record_encode(&record, ret_length) : NULL;
    free(response);
    free(input);
    free(messages);
    chat_prompt_clear(&joined);
    return bytes;
}

static void store(struct responses *responses)
{
    size_t length = 0;
    if (!responses->request.store)
        return;
    void *bytes = encode_record(responses, &length);
    stored_responses_put(responses->answer.service, &responses->id, bytes, length);
}

/* ---- answering ---- */

static void finished(struct answer *answer, struct choice *choice)
{
    chat_prompt_remember(&((struct responses *)answer)->prompt, answer->service, choice);
}

static bool take_piece(void *context, enum chat_piece_kind kind, const char *text, size_t length)
{
    struct responses *responses = context;
    const struct chat_turn *turn = &responses->turn;
    const char *call_id = kind == CHAT_PIECE_TOOL ? turn->calls[turn->n_calls - 1].id : NULL;
    return responses_output_add(responses->output, kind, text, length, call_id);
}

static bool end(struct responses *responses)
{
    struct answer *answer = &responses->answer;
    struct response_usage usage;
    struct response_timings timings;
    answer_sum_up(answer, &usage, &timings);
    struct responses_end how = {.incomplete = responses->turn.choice->reason == FINISH_LENGTH,
                                .usage = &usage,
                                .reasoning_tokens = chat_turn_reasoning_tokens(&responses->turn),
                                .timings = &timings,
                                .completed_at = (int64_t)time(NULL)};
    if (!responses_output_end(responses->output, &how))
        return false;
    store(responses);
    return true;
}

static char *whole(struct answer *answer, size_t *ret_length)
{
    struct responses *responses = (struct responses *)answer;
    if (!chat_turn_read(&responses->turn, take_piece, responses) || !end(responses))
        return NULL;
    return responses_output_json(responses->output, ret_length);
}

static bool stream(struct answer *answer, struct choice *choice, size_t text_from, bool last)
{
    (void)choice; /* there is one, and */
    (void)text_from; /* the turn knows what it has read */
    struct responses *responses = (struct responses *)answer;
    return (answer->stream_begun || responses_output_begin(responses->output)) &&
           chat_turn_read(&responses->turn, take_piece, responses) && (!last || end(responses));
}

static char *error_frame(struct answer *answer, const struct api_error *error, size_t *ret_length)
{
    return responses_output_fail(((struct responses *)answer)->output, error, ret_length);
}

const struct answer_form responses_form = {
    .endpoint = ENDPOINT_RESPONSES,
    .id_prefix = "resp_",
    .too_long_field = "input",
    .bytes = sizeof(struct responses),
    .prepare = prepare,
    .fetch = fetch,
    .whole = whole,
    .stream = stream,
    .error_frame = error_frame,
    .finished = finished,
    .clear = clear,
};
