/* How a model wants chats to be written: its template and what the template can do, which is found out by trying at
 * creation. Immutable after creation: any thread may use one at once. */
#ifndef DAEMON_CHAT_FORMAT_H
#define DAEMON_CHAT_FORMAT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npu/error.h"
#include "proto/api_error.h"
#include "proto/chat_parser.h"

struct chat_format;
struct gguf_file;
struct template_fields;
struct tokenizer;

/* The template is the file at template_path or, if that is NULL, the model file's own. A model without one, or with one
 * that does not work, is no error: chat_format_render says what to do. A file that cannot be used is
 * NPU_ERROR_INPUT. */
enum npu_status chat_format_create(struct chat_format **ret_format, const struct gguf_file *file,
                                   const char *template_path, const struct tokenizer *tokenizer,
                                   struct npu_error *error);
void chat_format_destroy(struct chat_format *format); /* NULL is fine */

/* Why there are no chats with this model; NULL when there are. */
const char *chat_format_problem(const struct chat_format *format);
enum chat_reasoning chat_format_reasoning(const struct chat_format *format);
/* How calls are written; never NONE: where the template knows no way that npud knows, the prompt explains one. */
enum chat_tool_style chat_format_tools(const struct chat_format *format);
/* Control tokens that have a meaning for struct chat_parser, so that their text must be seen. */
const int32_t *chat_format_marks(const struct chat_format *format, int *ret_n);
/* The text ends inside thinking: what is generated next is more of it. */
bool chat_format_begins_in_reasoning(const struct chat_format *format, const char *text, size_t length);
/* The model thinks, and the text does not end with a thought that is over already, as templates write it where there is
 * to be none. */
bool chat_format_may_reason(const struct chat_format *format, const char *text, size_t length);

/* What a prompt is made of; borrowed. */
struct chat_content {
    const json_t *messages; /* as chat_messages_read gives them */
    json_t *tools; /* as tool_fields_offered gives them; NULL: none */
    const struct template_fields *fields;
    const char *messages_field, *effort_field; /* that errors name: "messages", "reasoning_effort" */
    int64_t now_s; /* the time for the template, in seconds since 1970 */
};

/* The prompt, malloc'ed. False: error is set. */
bool chat_format_render(const struct chat_format *format, const struct chat_content *content, char **ret_text,
                        size_t *ret_length, struct api_error *error);

/* The tokens of a rendered text: control tokens are taken as such, and the token that begins every text is put first
 * unless the template has done so. */
enum npu_status chat_format_tokenize(const struct chat_format *format, const char *text, size_t length,
                                     int32_t **ret_tokens, int32_t *ret_n, struct npu_error *error);

#endif
