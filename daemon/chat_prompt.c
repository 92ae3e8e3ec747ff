#include "daemon/chat_prompt.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/chat_format.h"
#include "daemon/chat_history.h"
#include "daemon/service_internal.h"

static bool tokenize(struct chat_prompt *prompt, const struct service *service, const char *path,
                     struct api_error *error)
{
    struct npu_error problem;
    if (!service_check_prompt_bytes(service, path, prompt->length, error))
        return false;
    switch (chat_format_tokenize(service->model.chat_format, prompt->text, prompt->length, &prompt->tokens,
                                 &prompt->n_tokens, &problem)) {
    case NPU_OK:
        chat_history_apply(service->chat_history, prompt->text, prompt->length, &prompt->tokens, &prompt->n_tokens);
        return true;
    case NPU_ERROR_MEMORY:
        return api_error_set(error, API_ERROR_OUT_OF_MEMORY, NULL, "not enough memory for the request");
    default:
        return api_error_set(error, API_ERROR_INVALID_VALUE, path, "%s: %s", path, problem.message);
    }
}

bool chat_prompt_create(struct chat_prompt *prompt, const struct service *service, struct chat_content *content,
                        struct api_error *error)
{
    *prompt = (struct chat_prompt){0};
    content->now_s = (int64_t)time(NULL);
    if (!chat_format_render(service->model.chat_format, content, &prompt->text, &prompt->length, error))
        return false;
    if (tokenize(prompt, service, content->messages_field, error))
        return true;
    chat_prompt_clear(prompt);
    return false;
}

void chat_prompt_clear(struct chat_prompt *prompt)
{
    free(prompt->text);
    free(prompt->tokens);
    *prompt = (struct chat_prompt){0};
}

bool chat_prompt_join(struct chat_prompt *ret_joined, const struct chat_prompt *prompt, const struct choice *choice)
{
    const struct generation *generation = choice->generation;
    int32_t n_output = choice->n_output;
    size_t said = choice->text_length;
    while (n_output > 0 && choice->output[n_output - 1].end > choice->text_length)
        n_output--; /* cut by a stop string */
    if (n_output < choice->n_output)
        said = n_output > 0 ? choice->output[n_output - 1].end : 0;
    size_t length = prompt->length + said, n_tokens = (size_t)generation->n_prompt + (size_t)n_output;
    *ret_joined = (struct chat_prompt){.text = malloc(length + 1),
                                       .length = length,
                                       .tokens = malloc(n_tokens * sizeof *ret_joined->tokens),
                                       .n_tokens = (int32_t)n_tokens};
    if (ret_joined->text == NULL || ret_joined->tokens == NULL) {
        chat_prompt_clear(ret_joined);
        return false;
    }
    memcpy(ret_joined->text, prompt->text, prompt->length);
    if (said > 0)
        memcpy(ret_joined->text + prompt->length, choice->text, said);
    memcpy(ret_joined->tokens, generation->prompt, (size_t)generation->n_prompt * sizeof *ret_joined->tokens);
    for (int32_t i = 0; i < n_output; i++)
        ret_joined->tokens[generation->n_prompt + i] = choice->output[i].token;
    return true;
}

void chat_prompt_remember(const struct chat_prompt *prompt, const struct service *service, const struct choice *choice)
{
    struct chat_prompt joined;
    if (!chat_prompt_join(&joined, prompt, choice))
        return;
    chat_history_add(service->chat_history, joined.text, joined.length, joined.tokens, joined.n_tokens);
    chat_prompt_clear(&joined);
}
