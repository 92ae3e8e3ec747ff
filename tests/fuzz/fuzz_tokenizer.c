/* The first byte chooses: any bytes as a text for a good tokenizer, one for each pre-tokenizer, which must come back byte
 * for byte from its tokens; or any bytes as the model file of a tokenizer. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/tokenizer.h"
#include "npu/gguf.h"
#include "tests/unit/gguf_builder.h"

enum {
    N_PRES = 5,
};

static struct tokenizer *tokenizers[N_PRES];

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* The printable character that byte-level BPE writes for a byte. */
static size_t written_byte(unsigned byte, char *out)
{
    unsigned character = byte;
    if (byte <= 0x20)
        character = 0x100 + byte;
    else if (byte >= 0x7f && byte <= 0xa0)
        character = 0x121 + byte - 0x7f;
    else if (byte == 0xad)
        character = 0x143;
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    out[0] = (char)(0xc0 | character >> 6);
    out[1] = (char)(0x80 | (character & 0x3f));
    return 2;
}

static void create_tokenizer(struct tokenizer **ret_tokenizer, const char *pre)
{
    /* \304\240 is the written form of a space */
    static const char *const others[] = {"aa",      "aaaa", "ab",  "\304\240\304\240", "\304\240a", "11",
                                         "<|end|>", "<u>",  "<u>a"};
    static const char *const merges[] = {"a a", "aa aa", "a b", "\304\240 \304\240", "\304\240 a", "1 1"};
    struct gguf_builder builder;
    struct gguf_file *file;
    size_t size;
    gguf_builder_init(&builder, 3);
    gguf_add_string(&builder, "tokenizer.ggml.model", "gpt2");
    gguf_add_string(&builder, "tokenizer.ggml.pre", pre);
    gguf_add_array(&builder, "tokenizer.ggml.tokens", GGUF_STRING, 256 + 9);
    for (unsigned byte = 0; byte < 256; byte++) {
        char written[2];
        gguf_put_string(&builder.pairs, written, written_byte(byte, written));
    }
    for (size_t i = 0; i < 9; i++)
        gguf_put_string(&builder.pairs, others[i], strlen(others[i]));
    gguf_add_array(&builder, "tokenizer.ggml.token_type", GGUF_I32, 256 + 9);
    for (uint32_t i = 0; i < 256 + 9; i++)
        gguf_put_u32(&builder.pairs, i == 256 + 6 ? 3 : i > 256 + 6 ? 4 : 1);
    gguf_add_string_array(&builder, "tokenizer.ggml.merges", merges, 6);
    gguf_add_bool(&builder, "tokenizer.ggml.add_bos_token", 0);
    unsigned char *data = gguf_builder_finish(&builder, &size);
    require(gguf_open_memory(&file, data, size, "fuzz.gguf", NULL) == NPU_OK);
    require(tokenizer_create(ret_tokenizer, file, NULL) == NPU_OK);
    gguf_close(file);
    free(data);
    gguf_builder_free(&builder);
}

static void encode_text(const struct tokenizer *tokenizer, const char *text, size_t length)
{
    for (int parse_special = 0; parse_special < 2; parse_special++) {
        int32_t *tokens, n;
        size_t at = 0;
        require(tokenizer_encode(tokenizer, text, length, true, parse_special, &tokens, &n, NULL) == NPU_OK);
        for (int32_t i = 0; i < n; i++) {
            size_t bytes;
            const char *piece = tokenizer_piece(tokenizer, tokens[i], &bytes);
            require(bytes <= length - at && memcmp(piece, text + at, bytes) == 0);
            require(parse_special || !tokenizer_is_control(tokenizer, tokens[i]));
            at += bytes;
        }
        require(at == length);
        free(tokens);
    }
}

static void create_from_bytes(const uint8_t *data, size_t size)
{
    struct gguf_file *file;
    struct tokenizer *tokenizer;
    struct npu_error error = {0};
    int32_t *tokens, n;
    if (gguf_open_memory(&file, data, size, "fuzz.gguf", &error) != NPU_OK)
        return;
    if (tokenizer_create(&tokenizer, file, &error) == NPU_OK) {
        if (tokenizer_encode(tokenizer, (const char *)data, size, true, true, &tokens, &n, &error) == NPU_OK)
            free(tokens);
        tokenizer_destroy(tokenizer);
    } else {
        require(error.message[0] != 0);
    }
    gguf_close(file);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const pres[N_PRES] = {"gpt-2", "smollm", "llama-bpe", "qwen2", "default"};
    (void)argc;
    (void)argv;
    for (int i = 0; i < N_PRES; i++)
        create_tokenizer(&tokenizers[i], pres[i]);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 8 < N_PRES)
        encode_text(tokenizers[data[0] % 8], (const char *)data + 1, size - 1);
    else
        create_from_bytes(data + 1, size - 1);
    return 0;
}
