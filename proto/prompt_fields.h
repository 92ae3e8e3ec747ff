/* What a model is to read: a string, an array of strings, an array of token ids or an array of such arrays, as OpenAI's
 * "prompt" and "input". Thread: any. */
#ifndef PROTO_PROMPT_FIELDS_H
#define PROTO_PROMPT_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/api_error.h"
#include "proto/request_fields.h"

/* Text, or tokens when text is NULL. */
struct prompt_field {
    char *text; /* owned; may hold NUL bytes */
    size_t length;
    int32_t *tokens; /* owned; each below n_vocab */
    int32_t n_tokens;
};

struct prompt_form {
    const char *name; /* the field's */
    int max_entries;
};

/* Sets *ret_prompts (owned by the caller, also after false) to the field's entries; *ret_is_list: several may have been
 * given, so that errors name them "prompt[0]". */
bool prompt_fields_read(struct prompt_field **ret_prompts, int *ret_n, bool *ret_is_list, const json_t *object,
                        const struct prompt_form *form, const struct request_limits *limits, struct api_error *error);
void prompt_fields_clear(struct prompt_field *prompts, int n); /* frees prompts, too; NULL is fine with n 0 */

/* "prompt", or "prompt[i]" in a list. */
const char *prompt_fields_path(const struct prompt_form *form, bool is_list, int i, char *path, size_t capacity);

#endif
