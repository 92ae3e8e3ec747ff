/* The prompt of a chat: rendered, tokenized, and joined to what was said in it before. Thread: any, but for
 * chat_prompt_remember. */
#ifndef DAEMON_CHAT_PROMPT_H
#define DAEMON_CHAT_PROMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/api_error.h"

struct chat_content;
struct choice;
struct service;

struct chat_prompt {
    char *text; /* owned */
    size_t length;
    int32_t *tokens; /* owned */
    int32_t n_tokens;
};

/* content->now_s is set here. A prompt that is far too long for the context is refused; whether it fits to the token is
 * the caller's to check. False: error is set and nothing is left to clear. */
bool chat_prompt_create(struct chat_prompt *prompt, const struct service *service, struct chat_content *content,
                        struct api_error *error);
void chat_prompt_clear(struct chat_prompt *prompt);

/* The prompt and what a choice (which keeps its output) has answered, but for what a stop string has cut. False: memory
 * is out. Thread: the loop's, before the generation is freed. */
bool chat_prompt_join(struct chat_prompt *ret_joined, const struct chat_prompt *prompt, const struct choice *choice);

/* A choice (which keeps its output) has answered the prompt: a later prompt that goes on from there will be given the
 * tokens that were said. Thread: the loop's, before the generation is freed. */
void chat_prompt_remember(const struct chat_prompt *prompt, const struct service *service, const struct choice *choice);

#endif
