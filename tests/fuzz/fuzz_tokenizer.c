/* The first byte chooses: any bytes as a text for a good tokenizer, one of each kind, which must come back byte
 * for byte from its tokens (where it is normalized first, if that changes nothing); or any bytes as the model file of a tokenizer. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/tokenizer.h"
#include "daemon/tokenizer_internal.h"
#include "npu/gguf.h"
#include "tests/unit/gguf_builder.h"

struct kind {
    const char *model, *pre;
};

static const struct kind kinds[] = {{"gpt2", "gpt-2"},   {"gpt2", "smollm"}, {"gpt2", "llama-bpe"}, {"gpt2", "qwen2"},
                                    {"gpt2", "default"}, {"llama", ""},      {"gemma4", ""}};

enum {
    N_KINDS = sizeof kinds / sizeof kinds[0],
    N_OTHERS = 9,
};

static struct tokenizer *tokenizers[N_KINDS];

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

/* A token for each byte, and a few that merge; \304\240 and \342\226\201 are the written forms of a space. */
static void create_tokenizer(struct tokenizer **ret_tokenizer, const struct kind *kind)
{
    static const char *const byte_others[N_OTHERS] = {"aa",      "aaaa", "ab",  "\304\240\304\240", "\304\240a", "11",
                                                      "<|end|>", "<u>",  "<u>a"};
    static const char *const byte_merges[] = {"a a", "aa aa", "a b", "\304\240 \304\240", "\304\240 a", "1 1"};
    static const char *const piece_others[N_OTHERS] = {"a",    "aa",      "\342\226\201", "\342\226\201a", "\n",
                                                       "\n\n", "<|end|>", "<u>",          "<u>a"};
    static const char *const piece_merges[] = {"a a", "\342\226\201 a", "\n \n"};
    bool bytes = strcmp(kind->model, "gpt2") == 0;
    struct gguf_builder builder;
    struct gguf_file *file;
    size_t size;
    gguf_builder_init(&builder, 3);
    gguf_add_string(&builder, "tokenizer.ggml.model", kind->model);
    gguf_add_string(&builder, "tokenizer.ggml.pre", kind->pre);
    gguf_add_array(&builder, "tokenizer.ggml.tokens", GGUF_STRING, 256 + N_OTHERS);
    for (unsigned byte = 0; byte < 256; byte++) {
        char written[8];
        size_t length =
            bytes ? written_byte(byte, written) : (size_t)snprintf(written, sizeof written, "<0x%02X>", byte);
        gguf_put_string(&builder.pairs, written, length);
    }
    for (size_t i = 0; i < N_OTHERS; i++) {
        const char *other = bytes ? byte_others[i] : piece_others[i];
        gguf_put_string(&builder.pairs, other, strlen(other));
    }
    gguf_add_array(&builder, "tokenizer.ggml.token_type", GGUF_I32, 256 + N_OTHERS);
    for (uint32_t i = 0; i < 256 + N_OTHERS; i++)
        gguf_put_u32(&builder.pairs, i < 256 && !bytes ? 6 : i < 256 + 6 ? 1 : i == 256 + 6 ? 3 : 4);
    gguf_add_array(&builder, "tokenizer.ggml.scores", GGUF_F32, 256 + N_OTHERS);
    for (uint32_t i = 0; i < 256 + N_OTHERS; i++)
        gguf_put(&builder.pairs, &(float){-(float)i}, sizeof(float));
    gguf_add_string_array(&builder, "tokenizer.ggml.merges", bytes ? byte_merges : piece_merges, bytes ? 6 : 3);
    gguf_add_u32(&builder, "tokenizer.ggml.bos_token_id", 256 + 6);
    gguf_add_bool(&builder, "tokenizer.ggml.add_bos_token", 0);
    gguf_add_bool(&builder, "tokenizer.ggml.add_space_prefix", 0);
    unsigned char *data = gguf_builder_finish(&builder, &size);
    require(gguf_open_memory(&file, data, size, "fuzz.gguf", NULL) == NPU_OK);
    require(tokenizer_create(ret_tokenizer, file, NULL) == NPU_OK);
    gguf_close(file);
    free(data);
    gguf_builder_free(&builder);
}

static void encode_text(const struct tokenizer *tokenizer, bool composes, const char *text, size_t length)
{
    if (memmem(text, length, "\342\226\201", 3) != NULL) /* SentencePiece's own sign for a space comes back as one */
        return;
    char *composed = NULL;
    size_t composed_length = length;
    if (composes)
        require(text_compose(text, length, &composed, &composed_length, NULL) == NPU_OK);
    bool comes_back = composed == NULL || (composed_length == length && memcmp(composed, text, length) == 0);
    free(composed);
    for (int parse_special = 0; parse_special < 2; parse_special++) {
        int32_t *tokens, n;
        size_t at = 0;
        require(tokenizer_encode(tokenizer, text, length, false, parse_special, &tokens, &n, NULL) == NPU_OK);
        for (int32_t i = 0; i < n && comes_back; i++) {
            size_t bytes;
            const char *piece = tokenizer_piece(tokenizer, tokens[i], &bytes);
            require(bytes <= length - at && memcmp(piece, text + at, bytes) == 0);
            require(parse_special || !tokenizer_is_control(tokenizer, tokens[i]));
            at += bytes;
        }
        require(at == length || !comes_back);
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
    (void)argc;
    (void)argv;
    for (int i = 0; i < N_KINDS; i++)
        create_tokenizer(&tokenizers[i], &kinds[i]);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 8 < N_KINDS)
        encode_text(tokenizers[data[0] % 8], strcmp(kinds[data[0] % 8].pre, "qwen2") == 0, (const char *)data + 1,
                    size - 1);
    else
        create_from_bytes(data + 1, size - 1);
    return 0;
}
