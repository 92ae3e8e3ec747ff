/* POST /tokenize, /detokenize and /v1/chat/completions/render: what generates nothing. The work is done on the pool. */
#include <stdlib.h>
#include <string.h>

#include "daemon/chat_format.h"
#include "daemon/chat_prompt.h"
#include "daemon/service_internal.h"
#include "daemon/tokenizer.h"
#include "daemon/utf8_stream.h"
#include "proto/chat_request.h"
#include "proto/text_request.h"

struct text_call {
    struct service *service;
    struct http_request *http; /* NULL: the client is gone */
    /* The worker's while it works. */
    uv_work_t work;
    char *(*answer)(struct text_call *call, size_t *ret_length);
    char *body, *json; /* owned */
    size_t body_length, json_length;
    struct api_error error; /* kind is API_ERROR_NONE: none */
};

/* ---- on a worker thread ---- */

static char *out_of_memory(struct text_call *call)
{
    api_error_set(&call->error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
    return NULL;
}

static char *tokenize(struct text_call *call, size_t *ret_length)
{
    struct tokenize_request request;
    if (!tokenize_request_decode(&request, call->body, call->body_length, &call->error))
        return NULL;
    int32_t *tokens = NULL, n_tokens = 0;
    struct npu_error error;
    enum npu_status status = tokenizer_encode(call->service->model.tokenizer, request.content, request.length,
                                              request.add_special, request.parse_special, &tokens, &n_tokens, &error);
    free(request.content);
    if (status != NPU_OK) {
        api_error_set(&call->error, status == NPU_ERROR_MEMORY ? API_ERROR_OUT_OF_MEMORY : API_ERROR_INVALID_VALUE,
                      "content", "content: %s", error.message);
        return NULL;
    }
    char *json = tokenize_response_json(tokens, (size_t)n_tokens, ret_length);
    free(tokens);
    return json != NULL ? json : out_of_memory(call);
}

/* The pieces' bytes, repaired. */
static char *join_pieces(const struct tokenizer *tokenizer, const struct detokenize_request *request,
                         size_t *ret_length)
{
    size_t capacity = 4, n = 0, length;
    for (size_t i = 0; i < request->n_tokens; i++) {
        tokenizer_piece(tokenizer, request->tokens[i], &length);
        capacity += UTF8_STREAM_OUTPUT_BYTES(length);
    }
    char *text = malloc(capacity);
    struct utf8_stream utf8;
    utf8_stream_init(&utf8);
    for (size_t i = 0; text != NULL && i < request->n_tokens; i++) {
        const char *piece = tokenizer_piece(tokenizer, request->tokens[i], &length);
        n += utf8_stream_push(&utf8, piece, length, text + n);
    }
    *ret_length = text != NULL ? n + utf8_stream_flush(&utf8, text + n) : 0;
    return text;
}

static char *detokenize(struct text_call *call, size_t *ret_length)
{
    const struct tokenizer *tokenizer = call->service->model.tokenizer;
    struct request_limits limits = {.n_vocab = tokenizer_n_vocab(tokenizer)};
    struct detokenize_request request;
    if (!detokenize_request_decode(&request, call->body, call->body_length, &limits, &call->error))
        return NULL;
    size_t length;
    char *text = join_pieces(tokenizer, &request, &length);
    char *json = text != NULL ? detokenize_response_json(text, length, ret_length) : NULL;
    free(text);
    free(request.tokens);
    return json != NULL ? json : out_of_memory(call);
}

static char *render(struct text_call *call, size_t *ret_length)
{
    struct request_limits limits = {.n_vocab = tokenizer_n_vocab(call->service->model.tokenizer)};
    struct chat_request request;
    if (!chat_request_decode(&request, call->body, call->body_length, &limits, &call->error))
        return NULL;
    struct chat_content content = {.messages = request.messages,
                                   .tools = tool_fields_offered(&request.tools),
                                   .fields = &request.template,
                                   .messages_field = "messages",
                                   .effort_field = "reasoning_effort"};
    struct chat_prompt prompt;
    char *json = NULL;
    if (chat_prompt_create(&prompt, call->service, &content, &call->error)) {
        json = render_response_json(prompt.text, prompt.length, prompt.tokens, (size_t)prompt.n_tokens, ret_length);
        if (json == NULL)
            out_of_memory(call);
        chat_prompt_clear(&prompt);
    }
    chat_request_clear(&request);
    return json;
}

static void work(uv_work_t *work)
{
    struct text_call *call = work->data;
    call->json = call->answer(call, &call->json_length);
}

/* ---- on the loop's thread ---- */

static void finish(struct text_call *call)
{
    if (call->http != NULL && call->error.kind != API_ERROR_NONE)
        http_response_send_error(call->http, &call->error);
    else if (call->http != NULL)
        http_response_send(call->http, 200, "application/json", call->json, call->json_length);
    service_request_done(call->service);
    free(call->body);
    free(call->json);
    free(call);
}

static void on_gone(void *context)
{
    struct text_call *call = context;
    call->http = NULL;
    uv_cancel((uv_req_t *)&call->work);
}

static void on_worked(uv_work_t *done, int status)
{
    (void)status; /* cancelled ones have no client left */
    finish(done->data);
}

static void handle(struct http_request *http, struct service *service,
                   char *(*answer)(struct text_call *call, size_t *ret_length))
{
    if (!service_check_ready(service, http))
        return;
    struct text_call *call = calloc(1, sizeof *call);
    if (call == NULL) {
        service_send_json(http, NULL, 0);
        return;
    }
    call->service = service;
    call->http = http;
    call->answer = answer;
    call->work.data = call;
    service_request_begun(service);
    call->body = http_request_take_body(http, &call->body_length);
    if (call->body == NULL || uv_queue_work(service->loop, &call->work, work, on_worked) != 0) {
        out_of_memory(call);
        finish(call);
        return;
    }
    http_request_set_on_gone(http, on_gone, call);
}

static void handle_tokenize(struct http_request *http, void *service)
{
    handle(http, service, tokenize);
}

static void handle_detokenize(struct http_request *http, void *service)
{
    handle(http, service, detokenize);
}

static void handle_render(struct http_request *http, void *service)
{
    handle(http, service, render);
}

bool text_service_add_routes(struct service *service)
{
    return http_server_route(service->server, "POST", "/tokenize", HTTP_BODY_JSON, handle_tokenize, service) &&
           http_server_route(service->server, "POST", "/detokenize", HTTP_BODY_JSON, handle_detokenize, service) &&
           http_server_route(service->server, "POST", "/v1/chat/completions/render", HTTP_BODY_JSON, handle_render,
                             service);
}
