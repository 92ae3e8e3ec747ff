/* Pre-tokenizers: each is one to four patterns, applied one after the other. A pattern cuts every part it is given into
 * its matches and what lies between them; the parts that the last one leaves are the words.
 *
 * Sources: Hugging Face's tokenizer.json of the models (Split with behaviour "Isolated", Digits, ByteLevel's own pattern),
 * and for "default", which no such file defines, llama.cpp's vocab code. \s stands there for Unicode's White_Space;
 * PCRE2's own \s has U+180E as well, so the property is spelled out. No pattern matches the empty string. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "daemon/tokenizer_internal.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/utf8.h"

enum {
    MAX_PATTERNS = 4,
};

#define SPACE "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* White space: all of it where it ends the part, else all but the last character, which goes with what follows. */
#define TRAILING_SPACE "[" SPACE "]+(?![^" SPACE "])"

#define GPT2_PATTERN                                                                                                   \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" TRAILING_SPACE "|[" SPACE "]+"

/* Llama 3's and Qwen 2's differ in how many digits make a word. */
#define LLAMA3_PATTERN(digits)                                                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*"       \
    "|[" SPACE "]*[\\r\\n]+|" TRAILING_SPACE "|[" SPACE "]+"

struct definition {
    const char *name;
    const char *patterns[MAX_PATTERNS];
    bool ignores_merges;
    bool adds_bos;
    bool wants_composed;
};

static const struct definition definitions[] = {
    {.name = "gpt-2", .patterns = {GPT2_PATTERN}},
    {.name = "smollm", .patterns = {"\\p{N}", GPT2_PATTERN}},
    {.name = "llama-bpe", .patterns = {LLAMA3_PATTERN("\\p{N}{1,3}")}, .ignores_merges = true, .adds_bos = true},
    {.name = "qwen2", .patterns = {LLAMA3_PATTERN("\\p{N}")}, .wants_composed = true},
    {.name = "default", .patterns = {"[\\p{P}$+<=>^~|]+", GPT2_PATTERN, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

struct pretokenizer {
    const struct definition *definition;
    pcre2_code *patterns[MAX_PATTERNS]; /* the unused ones are NULL */
    int n_patterns;
};

/* One split of one text. */
struct split {
    const struct pretokenizer *pretokenizer;
    const char *text;
    const char *valid; /* text itself, or a copy whose bytes that are not UTF-8 are replaced; same offsets */
    pcre2_match_data *match[MAX_PATTERNS];
    pcre2_match_context *limits;
    word_consumer *consumer;
    void *context;
    struct npu_error *error;
};

static enum npu_status compile(struct pretokenizer *pretokenizer, const char *pattern, struct npu_error *error)
{
    int code;
    size_t offset;
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
    if (compiled == NULL) {
        PCRE2_UCHAR reason[128] = "";
        pcre2_get_error_message(code, reason, sizeof reason);
        return npu_error_set(error, NPU_ERROR_SYSTEM, "PCRE2 cannot compile the pattern of pre-tokenizer '%s': %s",
                             pretokenizer->definition->name, (const char *)reason);
    }
    pretokenizer->patterns[pretokenizer->n_patterns++] = compiled;
    /* Where machine code cannot be made (no JIT built in, no executable memory) the pattern is interpreted. */
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
    return NPU_OK;
}

enum npu_status pretokenizer_create(struct pretokenizer **ret_pretokenizer, const char *name, size_t name_length,
                                    struct npu_error *error)
{
    const struct definition *definition = NULL;
    for (size_t i = 0; i < sizeof definitions / sizeof definitions[0]; i++) {
        if (strlen(definitions[i].name) == name_length && memcmp(definitions[i].name, name, name_length) == 0)
            definition = &definitions[i];
    }
    if (definition == NULL)
        return npu_error_set(
            error, NPU_ERROR_UNSUPPORTED,
            "pre-tokenizer '%.*s' is not supported; it may be gpt-2, smollm, llama-bpe, qwen2 or default",
            name_length < 64 ? (int)name_length : 64, name);
    struct pretokenizer *pretokenizer = calloc(1, sizeof *pretokenizer);
    if (pretokenizer == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for a pre-tokenizer");
    pretokenizer->definition = definition;
    for (int i = 0; i < MAX_PATTERNS && definition->patterns[i] != NULL; i++) {
        enum npu_status status = compile(pretokenizer, definition->patterns[i], error);
        if (status != NPU_OK) {
            pretokenizer_destroy(pretokenizer);
            return status;
        }
    }
    *ret_pretokenizer = pretokenizer;
    return NPU_OK;
}

void pretokenizer_destroy(struct pretokenizer *pretokenizer)
{
    if (pretokenizer == NULL)
        return;
    for (int i = 0; i < pretokenizer->n_patterns; i++)
        pcre2_code_free(pretokenizer->patterns[i]);
    free(pretokenizer);
}

bool pretokenizer_ignores_merges(const struct pretokenizer *pretokenizer)
{
    return pretokenizer->definition->ignores_merges;
}

bool pretokenizer_adds_bos(const struct pretokenizer *pretokenizer)
{
    return pretokenizer->definition->adds_bos;
}

bool pretokenizer_wants_composed(const struct pretokenizer *pretokenizer)
{
    return pretokenizer->definition->wants_composed;
}

/* A copy of text in which every byte that belongs to no character is a '`': a symbol like U+FFFD, one byte long, and
 * named by no pattern. The words are then cut from the original. */
static char *copy_as_valid(const char *text, size_t length)
{
    char *valid = malloc(length);
    if (valid == NULL)
        return NULL;
    memcpy(valid, text, length);
    for (size_t at = 0, bytes; at < length; at += bytes) {
        if (utf8_look(text + at, length - at, &bytes) != UTF8_CHARACTER)
            memset(valid + at, '`', bytes);
    }
    return valid;
}

/* Cuts text[start..end) with the patterns from level on. The depth of recursion is the number of patterns. */
static enum npu_status split_part(struct split *split, size_t start, size_t end, int level)
{
    enum npu_status status = NPU_OK;
    if (level == MAX_PATTERNS || split->pretokenizer->patterns[level] == NULL)
        return split->consumer(split->context, split->text + start, end - start, split->error);
    pcre2_match_data *match = split->match[level];
    size_t at = start; /* [start, at) is done */
    while (status == NPU_OK && at < end) {
        int found = pcre2_match(split->pretokenizer->patterns[level], (PCRE2_SPTR)split->valid + start, end - start,
                                at - start, PCRE2_NO_UTF_CHECK, match, split->limits);
        if (found < 0 && found != PCRE2_ERROR_NOMATCH)
            return npu_error_set(split->error, NPU_ERROR_MEMORY, "PCRE2 gave up on a text of %zu bytes (error %d)",
                                 end - start, found);
        size_t match_start = end, match_end = end;
        if (found > 0) {
            match_start = start + pcre2_get_ovector_pointer(match)[0];
            match_end = start + pcre2_get_ovector_pointer(match)[1];
        }
        if (match_start > at)
            status = split_part(split, at, match_start, level + 1);
        if (status == NPU_OK && match_end > match_start)
            status = split_part(split, match_start, match_end, level + 1);
        at = match_end;
    }
    return status;
}

enum npu_status pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text, size_t length,
                                   word_consumer *consumer, void *context, struct npu_error *error)
{
    struct split split = {.pretokenizer = pretokenizer,
                          .text = text,
                          .valid = text,
                          .consumer = consumer,
                          .context = context,
                          .error = error};
    char *copy = NULL;
    bool memory = (split.limits = pcre2_match_context_create(NULL)) != NULL;
    for (int i = 0; memory && i < pretokenizer->n_patterns; i++)
        memory = (split.match[i] = pcre2_match_data_create(1, NULL)) != NULL;
    if (memory && !utf8_is_valid(text, length))
        memory = (split.valid = copy = copy_as_valid(text, length)) != NULL;
    enum npu_status status = NPU_ERROR_MEMORY;
    if (memory) {
        /* The interpreter counts each step back over a run of white space; its default limit ends a run of megabytes. */
        pcre2_set_match_limit(split.limits, UINT32_MAX);
        status = split_part(&split, 0, length, 0);
    } else {
        npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for splitting a text of %zu bytes", length);
    }
    for (int i = 0; i < pretokenizer->n_patterns; i++)
        pcre2_match_data_free(split.match[i]);
    pcre2_match_context_free(split.limits);
    free(copy);
    return status;
}
