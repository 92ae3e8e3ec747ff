#include "daemon/choice.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/tokenizer.h"

static bool add_text(struct choice *choice, const char *text, size_t length)
{
    if (length == 0)
        return true;
    size_t needed = choice->text_length + length;
    if (needed > choice->text_capacity) {
        size_t capacity = choice->text_capacity * 2 > needed ? choice->text_capacity * 2 : needed + 64;
        char *grown = realloc(choice->text, capacity);
        if (grown == NULL)
            return false;
        choice->text = grown;
        choice->text_capacity = capacity;
    }
    memcpy(choice->text + choice->text_length, text, length);
    choice->text_length = needed;
    return true;
}

static bool add_tokens(struct choice *choice, struct generation_event *event)
{
    int needed = choice->n_tokens + event->n_tokens;
    if (needed > choice->token_capacity) {
        int capacity = choice->token_capacity * 2 > needed ? choice->token_capacity * 2 : needed + 8;
        struct generation_token *grown = realloc(choice->tokens, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        choice->tokens = grown;
        choice->token_capacity = capacity;
    }
    for (int i = 0; i < event->n_tokens; i++) {
        choice->tokens[choice->n_tokens++] = event->tokens[i];
        event->tokens[i].top = NULL; /* moved */
        event->tokens[i].n_top = 0;
    }
    return true;
}

static bool keep_output(struct choice *choice, const struct generation_event *event)
{
    int needed = choice->n_output + event->n_tokens;
    if (needed > choice->output_capacity) {
        int capacity = choice->output_capacity * 2 > needed ? choice->output_capacity * 2 : needed + 64;
        struct choice_output *grown = realloc(choice->output, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        choice->output = grown;
        choice->output_capacity = capacity;
    }
    for (int i = 0; i < event->n_tokens; i++) {
        const struct generation_token *token = &event->tokens[i];
        choice->output[choice->n_output++] =
            (struct choice_output){token->token, token->text_start + token->text_length};
    }
    return true;
}

bool choice_add(struct choice *choice, struct generation_event *event, bool with_tokens)
{
    if (event->finished) {
        choice->finished = true;
        choice->reason = event->reason;
        choice->usage = event->usage;
        choice->embedding = event->embedding;
        event->embedding = NULL; /* moved */
    }
    return add_text(choice, event->text, event->text_length) && (!choice->keeps_output || keep_output(choice, event)) &&
           (!with_tokens || add_tokens(choice, event));
}

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* In characters, of a byte offset; offsets come in ascending order. */
static int64_t character_offset(struct choice *choice, size_t byte)
{
    if (byte > choice->text_length)
        byte = choice->text_length;
    if (byte < choice->counted_bytes)
        choice->counted_bytes = choice->counted_characters = 0;
    for (; choice->counted_bytes < byte; choice->counted_bytes++)
        choice->counted_characters += !is_continuation(choice->text[choice->counted_bytes]);
    /* Inside a character: that character's own offset. */
    bool inside = byte < choice->text_length && is_continuation(choice->text[byte]);
    return choice->counted_characters - (inside ? 1 : 0);
}

static bool is_shown(const struct choice *choice, const struct generation_token *token)
{
    return token->text_start < choice->text_length ||
           (token->text_length == 0 && token->text_start == choice->text_length);
}

bool choice_take_tokens(struct choice *choice, const struct tokenizer *tokenizer, struct response_token **ret_tokens,
                        int *ret_n)
{
    *ret_tokens = NULL;
    *ret_n = 0;
    int n = 0;
    size_t n_alternatives = 0;
    for (; n < choice->n_tokens && is_shown(choice, &choice->tokens[n]); n++)
        n_alternatives += (size_t)choice->tokens[n].n_top;
    if (n > 0) {
        struct response_token *tokens =
            malloc((size_t)n * sizeof *tokens + n_alternatives * sizeof(struct response_alternative));
        if (tokens == NULL)
            return false;
        struct response_alternative *alternative = (struct response_alternative *)(tokens + n);
        for (int i = 0; i < n; i++) {
            struct generation_token *from = &choice->tokens[i];
            struct response_token *to = &tokens[i];
            to->text = tokenizer_piece(tokenizer, from->token, &to->length);
            to->has_logprob = from->has_logprob;
            to->logprob = from->logprob;
            to->text_offset = character_offset(choice, from->text_start);
            to->top = alternative;
            to->n_top = from->n_top;
            for (int j = 0; j < from->n_top; j++, alternative++) {
                alternative->text = tokenizer_piece(tokenizer, from->top[j].token, &alternative->length);
                alternative->logprob = from->top[j].logprob;
            }
            free(from->top);
        }
        memmove(choice->tokens, choice->tokens + n, (size_t)(choice->n_tokens - n) * sizeof *choice->tokens);
        choice->n_tokens -= n;
        *ret_tokens = tokens;
        *ret_n = n;
    }
    if (choice->finished) { /* what is left belongs to the stop string */
        for (int i = 0; i < choice->n_tokens; i++)
            free(choice->tokens[i].top);
        choice->n_tokens = 0;
    }
    return true;
}

const char *choice_finish_reason(const struct choice *choice)
{
    if (!choice->finished)
        return NULL;
    return choice->reason == FINISH_STOP ? "stop" : "length";
}

void choice_clear(struct choice *choice)
{
    for (int i = 0; i < choice->n_tokens; i++)
        free(choice->tokens[i].top);
    free(choice->tokens);
    free(choice->output);
    free(choice->text);
    free(choice->embedding);
    generation_destroy(choice->generation);
    memset(choice, 0, sizeof *choice);
}
