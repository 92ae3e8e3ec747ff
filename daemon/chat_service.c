/* POST /v1/chat/completions: from messages to generations, and from what they write to messages. */
#include <stdlib.h>
#include <string.h>

#include "daemon/answer.h"
#include "daemon/chat_constraint.h"
#include "daemon/chat_format.h"
#include "daemon/chat_prompt.h"
#include "daemon/chat_turn.h"
#include "daemon/service_internal.h"
#include "daemon/tokenizer.h"
#include "proto/chat_request.h"
#include "proto/chat_response.h"
#include "proto/sse.h"

struct chat {
    struct answer answer; /* first */
    struct chat_request request;
    struct chat_prompt prompt;
    struct chat_stream *streams; /* owned; one for each choice */
};

/* One choice. */
struct chat_stream {
    struct chat *chat;
    struct chat_turn turn;
    bool begun; /* its first chunk has been sent */
};

/* ---- preparing, on a worker thread ---- */

static bool init_streams(struct chat *chat)
{
    struct answer *answer = &chat->answer;
    struct chat_turn_options options = {
        .format = answer->service->model.chat_format,
        .prompt = &chat->prompt,
        .with_tools = tool_fields_offered(&chat->request.tools) != NULL,
        .parallel = chat->request.tools.parallel,
        .keeps_text = !answer->is_stream,
        .is_raw = chat_constraint_is_raw(&chat->request.grammar),
        .is_constrained = chat->request.grammar.is_given,
    };
    chat->streams = calloc((size_t)answer->n_choices, sizeof *chat->streams);
    if (chat->streams == NULL)
        return answer_out_of_memory(answer);
    for (int i = 0; i < answer->n_choices; i++) {
        chat->streams[i].chat = chat;
        if (!chat_turn_init(&chat->streams[i].turn, &answer->choices[i], &options))
            return answer_out_of_memory(answer);
    }
    return true;
}

static bool create_choices(struct chat *chat)
{
    const struct chat_request *request = &chat->request;
    struct answer_plan plan = {.sampling = &request->sampling,
                               .stop = &request->stop,
                               .queue = &request->queue,
                               .grammar = &request->grammar,
                               .session_key = request->prompt_cache_key,
                               .max_tokens = request->max_tokens,
                               .n_logprobs = request->logprobs,
                               .n = request->n};
    struct answer_prompt prompt = {chat->prompt.tokens, chat->prompt.n_tokens};
    chat->answer.is_stream = request->stream.stream;
    chat->answer.with_tokens = request->logprobs >= 0;
    if (prompt.n_tokens > chat->answer.service->model.max_prompt_tokens)
        return answer_prompt_too_long(&chat->answer, "messages", (size_t)prompt.n_tokens);
    if (prompt.n_tokens == 0)
        return api_error_set(&chat->answer.error, API_ERROR_INVALID_VALUE, "messages",
                             "the model's chat template makes no text of the messages");
    return answer_check_logprobs(&chat->answer, &plan, &prompt, 1) &&
           answer_create_choices(&chat->answer, &plan, &prompt, 1) && init_streams(chat);
}

static bool prepare(struct answer *answer)
{
    struct chat *chat = (struct chat *)answer;
    struct request_limits limits = {.n_vocab = tokenizer_n_vocab(answer->service->model.tokenizer)};
    if (!chat_request_decode(&chat->request, answer->body, answer->body_length, &limits, &answer->error))
        return false;
    struct chat_content content = {.messages = chat->request.messages,
                                   .tools = tool_fields_offered(&chat->request.tools),
                                   .fields = &chat->request.template,
                                   .messages_field = "messages",
                                   .effort_field = "reasoning_effort"};
    return chat_prompt_create(&chat->prompt, answer->service, &content, &answer->error) &&
           chat_constraint_set(&chat->request.grammar, answer->service->model.chat_format, &chat->prompt,
                               &chat->request.tools, "tools", &answer->error) &&
           create_choices(chat);
}

static void finished(struct answer *answer, struct choice *choice)
{
    chat_prompt_remember(&((struct chat *)answer)->prompt, answer->service, choice);
}

static void clear(struct answer *answer)
{
    struct chat *chat = (struct chat *)answer;
    for (int i = 0; chat->streams != NULL && i < answer->n_choices; i++)
        chat_turn_clear(&chat->streams[i].turn);
    free(chat->streams);
    chat_prompt_clear(&chat->prompt);
    chat_request_clear(&chat->request);
}

/* ---- answering ---- */

static void sum_up(const struct chat *chat, struct response_usage *usage, struct response_timings *timings)
{
    answer_sum_up(&chat->answer, usage, timings);
    usage->tells_reasoning = true;
    for (int i = 0; i < chat->answer.n_choices; i++)
        usage->reasoning_tokens += chat_turn_reasoning_tokens(&chat->streams[i].turn);
}

/* ---- whole answers ---- */

/* response->tokens and calls are malloc'ed. */
static bool fill_whole(struct chat_stream *stream, struct chat_response_choice *response)
{
    struct chat_turn *turn = &stream->turn;
    struct response_choice raw;
    if (!answer_fill_choice(&stream->chat->answer, turn->choice, 0, &raw))
        return false;
    response->index = raw.index;
    response->has_logprobs = stream->chat->request.logprobs >= 0;
    response->tokens = raw.tokens;
    response->n_tokens = raw.n_tokens;
    if (!chat_turn_read(turn, NULL, NULL))
        return false;
    response->finish_reason = chat_turn_finish_reason(turn);
    bool has_content = turn->content.length > 0 || turn->n_calls == 0;
    response->content = !has_content ? NULL : turn->content.text != NULL ? turn->content.text : "";
    response->content_length = turn->content.length;
    response->reasoning = turn->reasoning.text;
    response->reasoning_length = turn->reasoning.length;
    if (turn->n_calls == 0)
        return true;
    struct chat_response_call *calls = calloc((size_t)turn->n_calls, sizeof *calls);
    if (calls == NULL)
        return false;
    for (int i = 0; i < turn->n_calls; i++) {
        const struct chat_call *call = &turn->calls[i];
        const char *arguments = call->arguments.text != NULL ? call->arguments.text : "";
        calls[i] = (struct chat_response_call){call->id, call->name, arguments, call->arguments.length};
    }
    response->calls = calls;
    response->n_calls = turn->n_calls;
    return true;
}

static char *whole(struct answer *answer, size_t *ret_length)
{
    struct chat *chat = (struct chat *)answer;
    struct chat_response_choice *choices = calloc((size_t)answer->n_choices, sizeof *choices);
    char *body = NULL;
    bool ok = choices != NULL;
    for (int i = 0; ok && i < answer->n_choices; i++)
        ok = fill_whole(&chat->streams[i], &choices[i]);
    if (ok) {
        struct response_head head = answer_head(answer);
        struct response_usage usage;
        struct response_timings timings;
        sum_up(chat, &usage, &timings);
        body = chat_response_json(&head, choices, answer->n_choices, &usage, &timings, ret_length);
    }
    for (int i = 0; choices != NULL && i < answer->n_choices; i++) {
        free((void *)choices[i].tokens);
        free((void *)choices[i].calls);
    }
    free(choices);
    return body;
}

/* ---- streams ---- */

static bool send_chunk(const struct chat_stream *stream, const struct chat_delta *delta,
                       const struct response_timings *timings)
{
    struct response_head head = answer_head(&stream->chat->answer);
    size_t length = 0;
    char *frame = chat_chunk_frame(&head, delta, stream->chat->request.stream.include_usage, NULL, timings, &length);
    return answer_write_frame(&stream->chat->answer, frame, length);
}

/* The first one of a choice begins it. Each takes along the tokens that have come. */
static bool send_delta(struct chat_stream *stream, struct chat_delta *delta, const struct response_timings *timings)
{
    const struct service *service = stream->chat->answer.service;
    struct choice *choice = stream->turn.choice;
    struct response_token *tokens = NULL;
    delta->index = choice->index;
    if (!stream->begun) {
        struct chat_delta first = {.index = delta->index, .begins = true, .call = -1};
        delta->begins = delta->call >= 0;
        stream->begun = true;
        if (!delta->begins && !send_chunk(stream, &first, NULL))
            return false;
    }
    if (stream->chat->request.logprobs >= 0 &&
        !choice_take_tokens(choice, service->model.tokenizer, &tokens, &delta->n_tokens))
        return false;
    delta->tokens = tokens;
    bool ok = send_chunk(stream, delta, timings);
    free(tokens);
    return ok;
}

static bool send_piece(void *context, enum chat_piece_kind kind, const char *text, size_t length)
{
    struct chat_stream *stream = context;
    const struct chat_turn *turn = &stream->turn;
    struct chat_delta delta = {.call = -1, .length = length};
    switch (kind) {
    case CHAT_PIECE_REASONING:
        delta.reasoning = text;
        break;
    case CHAT_PIECE_CONTENT:
        delta.content = text;
        break;
    case CHAT_PIECE_TOOL:
        delta.call = turn->n_calls - 1;
        delta.call_id = turn->calls[delta.call].id;
        delta.call_name = turn->calls[delta.call].name;
        delta.arguments = "";
        break;
    case CHAT_PIECE_ARGUMENTS:
        delta.call = turn->n_calls - 1;
        delta.arguments = text;
        delta.arguments_length = length;
        break;
    }
    return send_delta(stream, &delta, NULL);
}

static bool stream_choice(struct chat_stream *stream, const struct response_timings *timings)
{
    if (!chat_turn_read(&stream->turn, send_piece, stream))
        return false;
    struct chat_delta end = {.call = -1, .finish_reason = chat_turn_finish_reason(&stream->turn)};
    return end.finish_reason == NULL || send_delta(stream, &end, timings);
}

static bool stream(struct answer *answer, struct choice *choice, size_t text_from, bool last)
{
    (void)text_from; /* the turn knows what it has read */
    struct chat *chat = (struct chat *)answer;
    struct response_usage usage;
    struct response_timings timings;
    bool with_usage = chat->request.stream.include_usage;
    if (last)
        answer_sum_up(answer, &usage, &timings);
    bool ok = stream_choice(&chat->streams[choice->index], last && !with_usage ? &timings : NULL);
    if (!ok || !last || !with_usage)
        return ok;
    sum_up(chat, &usage, &timings); /* all has been read now */
    struct response_head head = answer_head(answer);
    size_t length;
    char *frame = chat_chunk_frame(&head, NULL, true, &usage, &timings, &length);
    return answer_write_frame(answer, frame, length);
}

const struct answer_form chat_form = {
    .endpoint = ENDPOINT_CHAT,
    .id_prefix = "chatcmpl-",
    .too_long_field = "messages",
    .bytes = sizeof(struct chat),
    .prepare = prepare,
    .whole = whole,
    .stream = stream,
    .stream_end = SSE_DONE,
    .finished = finished,
    .clear = clear,
};
