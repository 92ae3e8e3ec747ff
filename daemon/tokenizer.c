/* The tokenizer as the rest of the daemon sees it: special tokens are cut out of the text first, what lies between them
 * goes to the encoder of the tokenizer model. */
#include "daemon/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/tokenizer_internal.h"
#include "npu/gguf.h"

struct tokenizer {
    struct vocabulary vocabulary;
    struct special_tokens specials;
    struct text_encoder *encoder;
    bool *ends_generation; /* by token */
    int32_t bos, eos; /* -1: none */
    bool add_bos, add_eos;
};

struct tokenizer_model {
    const char *name; /* tokenizer.ggml.model */
    token_decoder *decode;
    text_encoder_creator *create;
};

static const struct tokenizer_model models[] = {
    {"gpt2", byte_bpe_decode_token, byte_bpe_create},
    {"llama", sentencepiece_decode_token, sentencepiece_create},
    {"gemma4", sentencepiece_decode_token, gemma4_create},
};

static enum npu_status find_model(const struct tokenizer_model **ret_model, const struct gguf_file *file,
                                  struct npu_error *error)
{
    const char *name;
    size_t length;
    if (!gguf_get_string(file, "tokenizer.ggml.model", &name, &length))
        return npu_error_set(error, NPU_ERROR_INPUT, "%s: tokenizer.ggml.model is missing: the file has no tokenizer",
                             gguf_path(file));
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (strlen(models[i].name) == length && memcmp(models[i].name, name, length) == 0) {
            *ret_model = &models[i];
            return NPU_OK;
        }
    }
    return npu_error_set(
        error, NPU_ERROR_UNSUPPORTED,
        "%s: tokenizer.ggml.model: tokenizer model '%.*s' is not supported; it may be gpt2, llama or gemma4",
        gguf_path(file), length < 64 ? (int)length : 64, name);
}

/* Reads a token id from the file; *token is left alone when the key is absent. */
static enum npu_status read_token_id(const struct tokenizer *tokenizer, const struct gguf_file *file, const char *key,
                                     int32_t *token, struct npu_error *error)
{
    int64_t id;
    if (!gguf_has(file, key))
        return NPU_OK;
    if (!gguf_get_int(file, key, &id) || id < 0 || id >= tokenizer->vocabulary.n)
        return npu_error_set(error, NPU_ERROR_INPUT, "%s: %s is not a token id from 0 to %" PRId32, gguf_path(file),
                             key, tokenizer->vocabulary.n - 1);
    *token = (int32_t)id;
    return NPU_OK;
}

/* A control token by its written form, whatever the file says of its type: nothing else is ever written like this. */
static void mark_end_by_name(struct tokenizer *tokenizer, const char *name)
{
    int32_t token = vocabulary_find(&tokenizer->vocabulary, name, strlen(name));
    if (token < 0)
        return;
    tokenizer->ends_generation[token] = true;
    tokenizer->vocabulary.types[token] = TOKEN_CONTROL;
}

static enum npu_status find_ends_of_generation(struct tokenizer *tokenizer, const struct gguf_file *file,
                                               struct npu_error *error)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    static const char *const names[] = {"<|im_end|>",      "<|eot_id|>", "<|eom_id|>",    "<|end|>",
                                        "<end_of_turn>",   "<turn|>",    "<|endoftext|>", "<|end_of_text|>",
                                        "<|tool_response>" /* Gemma 4's turn to the caller of a tool */};
    tokenizer->ends_generation = calloc((size_t)tokenizer->vocabulary.n, sizeof *tokenizer->ends_generation);
    if (tokenizer->ends_generation == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for a tokenizer");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        int32_t token = -1;
        enum npu_status status = read_token_id(tokenizer, file, keys[i], &token, error);
        if (status != NPU_OK)
            return status;
        if (token >= 0)
            tokenizer->ends_generation[token] = true;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        mark_end_by_name(tokenizer, names[i]);
    return NPU_OK;
}

static enum npu_status read_special_ids(struct tokenizer *tokenizer, const struct gguf_file *file,
                                        struct npu_error *error)
{
    enum npu_status status;
    tokenizer->bos = tokenizer->eos = -1;
    if ((status = read_token_id(tokenizer, file, "tokenizer.ggml.bos_token_id", &tokenizer->bos, error)) != NPU_OK ||
        (status = read_token_id(tokenizer, file, "tokenizer.ggml.eos_token_id", &tokenizer->eos, error)) != NPU_OK)
        return status;
    tokenizer->add_bos = tokenizer->encoder->adds_bos;
    if (!tokenizer->encoder->always_adds_bos)
        gguf_get_bool(file, "tokenizer.ggml.add_bos_token", &tokenizer->add_bos);
    gguf_get_bool(file, "tokenizer.ggml.add_eos_token", &tokenizer->add_eos);
    if ((tokenizer->add_bos && tokenizer->bos < 0) || (tokenizer->add_eos && tokenizer->eos < 0))
        return npu_error_set(error, NPU_ERROR_INPUT,
                             "%s: the model wants a %s token, but tokenizer.ggml.%s_token_id is missing",
                             gguf_path(file), tokenizer->bos < 0 ? "bos" : "eos", tokenizer->bos < 0 ? "bos" : "eos");
    return NPU_OK;
}

enum npu_status tokenizer_create(struct tokenizer **ret_tokenizer, const struct gguf_file *file,
                                 struct npu_error *error)
{
    const struct tokenizer_model *model = NULL;
    enum npu_status status = find_model(&model, file, error);
    if (status != NPU_OK)
        return status;
    struct tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (tokenizer == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for a tokenizer");
    if ((status = vocabulary_load(&tokenizer->vocabulary, file, model->decode, error)) != NPU_OK ||
        (status = find_ends_of_generation(tokenizer, file, error)) != NPU_OK ||
        (status = special_tokens_init(&tokenizer->specials, &tokenizer->vocabulary, error)) != NPU_OK ||
        (status = model->create(&tokenizer->encoder, file, &tokenizer->vocabulary, error)) != NPU_OK ||
        (status = read_special_ids(tokenizer, file, error)) != NPU_OK) {
        tokenizer_destroy(tokenizer);
        return status;
    }
    *ret_tokenizer = tokenizer;
    return NPU_OK;
}

void tokenizer_destroy(struct tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    if (tokenizer->encoder != NULL)
        tokenizer->encoder->interface->destroy(tokenizer->encoder);
    special_tokens_free(&tokenizer->specials);
    vocabulary_free(&tokenizer->vocabulary);
    free(tokenizer->ends_generation);
    free(tokenizer);
}

static enum npu_status encode_text(const struct tokenizer *tokenizer, const char *text, size_t length,
                                   bool parse_special, struct token_list *tokens, struct npu_error *error)
{
    const struct text_encoder *encoder = tokenizer->encoder;
    enum npu_status status = NPU_OK;
    while (status == NPU_OK && length > 0) {
        size_t start = length, special_length = 0;
        int32_t special = special_tokens_find(&tokenizer->specials, &tokenizer->vocabulary, text, length, parse_special,
                                              &start, &special_length);
        if (start > 0)
            status = encoder->interface->encode(encoder, text, start, tokens, error);
        if (status == NPU_OK && special >= 0)
            status = token_list_add(tokens, special, error);
        text += start + special_length;
        length -= start + special_length;
    }
    return status;
}

enum npu_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length, bool add_special,
                                 bool parse_special, int32_t **ret_tokens, int32_t *ret_n, struct npu_error *error)
{
    struct token_list tokens = {0};
    enum npu_status status = NPU_OK;
    if (length > INT32_MAX)
        return npu_error_set(error, NPU_ERROR_INPUT, "a text of %zu bytes is too long, 2 GiB is the limit", length);
    if (add_special && tokenizer->add_bos)
        status = token_list_add(&tokens, tokenizer->bos, error);
    if (status == NPU_OK)
        status = encode_text(tokenizer, text, length, parse_special, &tokens, error);
    if (status == NPU_OK && add_special && tokenizer->add_eos)
        status = token_list_add(&tokens, tokenizer->eos, error);
    /* An empty result is memory, too: callers need no special case for NULL. */
    if (status == NPU_OK && tokens.tokens == NULL && (tokens.tokens = malloc(sizeof *tokens.tokens)) == NULL)
        status = npu_error_set(error, NPU_ERROR_MEMORY, "out of memory for tokens");
    if (status != NPU_OK) {
        free(tokens.tokens);
        return status;
    }
    *ret_tokens = tokens.tokens;
    *ret_n = (int32_t)tokens.n;
    return NPU_OK;
}

/* A model's output may have more rows than the file has tokens: those beyond are tokens without text. */
static bool is_listed(const struct tokenizer *tokenizer, int32_t token)
{
    return token >= 0 && token < tokenizer->vocabulary.n;
}

const char *tokenizer_piece(const struct tokenizer *tokenizer, int32_t token, size_t *length)
{
    if (!is_listed(tokenizer, token)) {
        *length = 0;
        return "";
    }
    return vocabulary_piece(&tokenizer->vocabulary, token, length);
}

bool tokenizer_is_control(const struct tokenizer *tokenizer, int32_t token)
{
    if (!is_listed(tokenizer, token))
        return false;
    uint8_t type = tokenizer->vocabulary.types[token];
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
}

bool tokenizer_is_end_of_generation(const struct tokenizer *tokenizer, int32_t token)
{
    return is_listed(tokenizer, token) && tokenizer->ends_generation[token];
}

int32_t tokenizer_n_vocab(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary.n;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->bos;
}

int32_t tokenizer_eos(const struct tokenizer *tokenizer)
{
    return tokenizer->eos;
}
