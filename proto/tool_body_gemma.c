/* Tool calls as Gemma 4 writes them. Source: its chat template. */
#include <jansson.h>
#include <string.h>

#include "proto/tool_body_internal.h"

static const char call[] = "call:", quote[] = "<|\"|>";

enum {
    CALL_BYTES = sizeof call - 1,
    QUOTE_BYTES = sizeof quote - 1,
    MAX_NAME_BYTES = 256,
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static enum tool_body_result read_head(struct tool_body *body, const char *bytes, size_t length,
                                       struct tool_body_output *output, size_t *ret_used)
{
    size_t start = 0;
    while (start < length && is_space(bytes[start]))
        start++;
    size_t n = length - start < CALL_BYTES ? length - start : CALL_BYTES;
    if (memcmp(bytes + start, call, n) != 0)
        return TOOL_BODY_WRONG;
    if (n < CALL_BYTES)
        return TOOL_BODY_MORE;
    size_t name = start + n;
    const char *brace = memchr(bytes + name, '{', length - name);
    size_t end = brace != NULL ? (size_t)(brace - bytes) : length;
    if (end - name > MAX_NAME_BYTES || (brace != NULL && end == name))
        return TOOL_BODY_WRONG;
    for (size_t i = name; i < end; i++)
        if (is_space(bytes[i]) || bytes[i] == '<')
            return TOOL_BODY_WRONG;
    if (brace == NULL)
        return TOOL_BODY_MORE;
    tool_body_tell_name(output, bytes + name, end - name);
    body->state = TOOL_BODY_IN_ARGUMENTS;
    *ret_used = end;
    return TOOL_BODY_MORE;
}

/* ---- strings ---- */

static void tell_escaped(struct tool_body_output *output, char c)
{
    static const char hex[] = "0123456789abcdef", short_escapes[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    char escape[6] = {'\\', 'u', '0', '0', hex[(unsigned char)c >> 4 & 15], hex[c & 15]};
    for (const char *e = short_escapes; *e != '\0'; e += 2) {
        if (*e == c) {
            escape[1] = e[1];
            tool_body_tell(output, escape, 2);
            return;
        }
    }
    if ((unsigned char)c < 0x20)
        tool_body_tell(output, escape, sizeof escape);
    else
        tool_body_tell(output, &c, 1);
}

static void tell_string(struct tool_body_output *output, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        tell_escaped(output, text[i]);
}

/* A byte of a string that the model quoted as JSON does. */
static void read_json_string_byte(struct tool_body *body, char c, struct tool_body_output *output)
{
    if ((unsigned char)c < 0x20)
        tell_escaped(output, c);
    else
        tool_body_tell(output, &c, 1);
    if (body->escaped)
        body->escaped = false;
    else if (c == '\\')
        body->escaped = true;
    else if (c == '"')
        body->in_json_string = false;
}

/* ---- bare words ---- */

static bool is_json(const char *word, size_t length)
{
    json_t *value = json_loadb(word, length, JSON_DECODE_ANY, NULL);
    bool is_scalar = value != NULL && !json_is_object(value) && !json_is_array(value);
    json_decref(value);
    return is_scalar;
}

static void add_to_word(struct tool_body *body, char c, struct tool_body_output *output)
{
    if (body->is_long_word) {
        tell_escaped(output, c);
        return;
    }
    body->word[body->n_word++] = c;
    if (body->n_word < sizeof body->word)
        return;
    tool_body_tell(output, "\"", 1); /* no number is that long */
    tell_string(output, body->word, body->n_word);
    body->n_word = 0;
    body->is_long_word = true;
}

static void end_word(struct tool_body *body, struct tool_body_output *output)
{
    if (body->is_long_word)
        tool_body_tell(output, "\"", 1);
    body->is_long_word = false;
    while (body->n_word > 0 && is_space(body->word[body->n_word - 1]))
        body->n_word--;
    if (body->n_word == 0)
        return;
    bool is_string = body->key_expected || !is_json(body->word, body->n_word);
    if (is_string)
        tool_body_tell(output, "\"", 1);
    if (is_string)
        tell_string(output, body->word, body->n_word);
    else
        tool_body_tell(output, body->word, body->n_word);
    if (is_string)
        tool_body_tell(output, "\"", 1);
    body->n_word = 0;
}

/* ---- structure ---- */

static bool open_bracket(struct tool_body *body, char c, struct tool_body_output *output)
{
    if ((body->depth > 0 && body->key_expected) || body->depth == (int)sizeof body->brackets)
        return false;
    tool_body_tell(output, &c, 1);
    body->brackets[body->depth++] = (unsigned char)c;
    body->key_expected = c == '{';
    return true;
}

static bool close_bracket(struct tool_body *body, char c, struct tool_body_output *output)
{
    if (body->depth == 0 || body->brackets[body->depth - 1] != (c == '}' ? '{' : '['))
        return false;
    tool_body_tell(output, &c, 1);
    if (--body->depth == 0)
        body->state = TOOL_BODY_REST;
    body->key_expected = false;
    return true;
}

/* A byte outside of strings. False: it may not be there. */
static bool read_byte(struct tool_body *body, char c, struct tool_body_output *output)
{
    bool in_word = body->n_word > 0 || body->is_long_word;
    if (strchr("{}[],", c) != NULL && c != '\0')
        end_word(body, output);
    switch (c) {
    case '{':
    case '[':
        return !in_word && open_bracket(body, c, output);
    case '}':
    case ']':
        return close_bracket(body, c, output);
    case ',':
        tool_body_tell(output, ", ", 2);
        body->key_expected = body->depth > 0 && body->brackets[body->depth - 1] == '{';
        return true;
    case ':':
        if (!body->key_expected)
            break;
        end_word(body, output);
        tool_body_tell(output, ": ", 2);
        body->key_expected = false;
        return true;
    case '"':
        if (in_word)
            break;
        tool_body_tell(output, "\"", 1);
        body->in_json_string = true;
        return true;
    default:
        if (is_space(c) && !in_word)
            return true;
        break;
    }
    add_to_word(body, c, output);
    return true;
}

static size_t read_arguments(struct tool_body *body, const char *bytes, size_t length, struct tool_body_output *output,
                             enum tool_body_result *result)
{
    size_t at = 0;
    while (at < length && body->state == TOOL_BODY_IN_ARGUMENTS) {
        size_t n = length - at < QUOTE_BYTES ? length - at : QUOTE_BYTES;
        bool is_quote = !body->in_json_string && memcmp(bytes + at, quote, n) == 0;
        if (is_quote && n < QUOTE_BYTES)
            break;
        if (is_quote) {
            end_word(body, output);
            tool_body_tell(output, "\"", 1);
            body->in_string = !body->in_string;
            at += QUOTE_BYTES;
        } else if (body->in_string) {
            tell_escaped(output, bytes[at++]);
        } else if (body->in_json_string) {
            read_json_string_byte(body, bytes[at++], output);
        } else if (!read_byte(body, bytes[at++], output)) {
            *result = TOOL_BODY_BROKEN;
            break;
        }
    }
    return at;
}

size_t tool_body_push_gemma(struct tool_body *body, const char *bytes, size_t length, struct tool_body_output *output,
                            enum tool_body_result *result)
{
    size_t used = 0;
    if (body->state == TOOL_BODY_HEAD)
        *result = read_head(body, bytes, length, output, &used);
    if (body->state == TOOL_BODY_IN_ARGUMENTS)
        used += read_arguments(body, bytes + used, length - used, output, result);
    if (body->state == TOOL_BODY_REST)
        *result = TOOL_BODY_DONE;
    return used;
}
