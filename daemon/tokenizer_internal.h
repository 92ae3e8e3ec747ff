/* What the parts of the tokenizer share. A tokenizer is a vocabulary, a matcher of special tokens, and an encoder for the
 * text between special tokens; each tokenizer model (byte-level BPE, ...) brings its own encoder in a file of its own. */
#ifndef DAEMON_TOKENIZER_INTERNAL_H
#define DAEMON_TOKENIZER_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npu/error.h"

struct gguf_file;

/* -- tokens that are being collected ------------------------------------------------------------------------------ */

struct token_list {
    int32_t *tokens; /* owned */
    size_t n, capacity;
};

enum npu_status token_list_add(struct token_list *list, int32_t token, struct npu_error *error);

/* -- vocabulary: tokenizer_vocabulary.c --------------------------------------------------------------------------- */

/* Values of tokenizer.ggml.token_type. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

/* Turns a token as it is written in the file into the bytes it stands for; returns their number, at most length. */
typedef size_t token_decoder(const char *written, size_t length, enum token_type type, char *out);

struct vocabulary {
    int32_t n;
    char *bytes; /* the pieces of all tokens, one after the other */
    uint32_t *starts; /* n + 1: piece i is bytes[starts[i]..starts[i + 1]) */
    uint8_t *types; /* enum token_type */
    int32_t *slots; /* hash table, piece to token: token + 1, or 0 */
    uint32_t mask;
    size_t longest_bytes; /* of all pieces */
};

/* Reads tokenizer.ggml.tokens and .token_type. */
enum npu_status vocabulary_load(struct vocabulary *vocabulary, const struct gguf_file *file, token_decoder *decode,
                                struct npu_error *error);
void vocabulary_free(struct vocabulary *vocabulary);
const char *vocabulary_piece(const struct vocabulary *vocabulary, int32_t token, size_t *length);
/* The token with this piece, or -1. Byte tokens are not found; of equal pieces an ordinary token comes first. */
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *piece, size_t length);
/* The same, but never a control token: what ordinary text may become. */
int32_t vocabulary_find_ordinary(const struct vocabulary *vocabulary, const char *piece, size_t length);

/* -- special tokens: tokenizer_special.c -------------------------------------------------------------------------- */

struct special_token {
    int32_t token;
    bool control; /* matched only when control tokens are asked for */
};

/* Control and user-defined tokens, sorted by piece. */
struct special_tokens {
    struct special_token *sorted;
    int32_t n;
    int32_t first[257]; /* those whose piece starts with byte b: sorted[first[b]..first[b + 1]) */
};

enum npu_status special_tokens_init(struct special_tokens *specials, const struct vocabulary *vocabulary,
                                    struct npu_error *error);
void special_tokens_free(struct special_tokens *specials);
/* The leftmost special token in text, the longest of those that start there: returns it and where it is, or -1. */
int32_t special_tokens_find(const struct special_tokens *specials, const struct vocabulary *vocabulary,
                            const char *text, size_t length, bool with_control, size_t *ret_start, size_t *ret_length);

/* -- pre-tokenizers: tokenizer_pretokenize.c ---------------------------------------------------------------------- */

/* How text is cut into the words that BPE works on. */
struct pretokenizer;

typedef enum npu_status word_consumer(void *context, const char *word, size_t length, struct npu_error *error);

/* By the name that stands in tokenizer.ggml.pre; another one is NPU_ERROR_UNSUPPORTED. */
enum npu_status pretokenizer_create(struct pretokenizer **ret_pretokenizer, const char *name, size_t name_length,
                                    struct npu_error *error);
void pretokenizer_destroy(struct pretokenizer *pretokenizer);
/* Calls consumer for each word of text, in order; together they are the text. Any bytes: what is not UTF-8 counts as
 * symbols, byte by byte. */
enum npu_status pretokenizer_split(const struct pretokenizer *pretokenizer, const char *text, size_t length,
                                   word_consumer *consumer, void *context, struct npu_error *error);
bool pretokenizer_ignores_merges(const struct pretokenizer *pretokenizer); /* a word that is a token is that token */
bool pretokenizer_adds_bos(const struct pretokenizer *pretokenizer); /* unless the file says otherwise */
bool pretokenizer_wants_composed(const struct pretokenizer *pretokenizer); /* text_compose comes first */

/* -- normalization: tokenizer_normalize.c ------------------------------------------------------------------------- */

/* Text in Unicode's form C, which the caller frees; *ret_copy is NULL where text is it already. Bytes that are not UTF-8
 * stay as they are. */
enum npu_status text_compose(const char *text, size_t length, char **ret_copy, size_t *ret_length,
                             struct npu_error *error);

/* -- merging: tokenizer_merge.c ----------------------------------------------------------------------------------- */

enum {
    MERGE_REMOVED = -2, /* as a symbol's token: it has become part of its left neighbour */
};

/* A piece of a word while it is being merged. */
struct merge_symbol {
    uint32_t start; /* in the word */
    int32_t token; /* -1: not in the vocabulary */
    int32_t previous, next;
};

struct merge_candidate {
    uint32_t priority; /* smaller is merged earlier; equal ones from left to right */
    int32_t left; /* index of the left symbol */
    int32_t left_token, right_token;
    int32_t merged;
};

/* Scratch memory of a run over one text; zero to start with. */
struct merge_work {
    struct merge_symbol *symbols;
    size_t n_symbols, symbols_capacity;
    struct merge_candidate *heap;
    size_t n_heap, heap_capacity;
};

/* Fills candidate->priority and ->merged if the symbols at left and right can merge. */
typedef bool merge_finder(const void *context, const struct merge_work *work, int32_t left, int32_t right,
                          struct merge_candidate *candidate);

enum npu_status merge_work_add_symbol(struct merge_work *work, uint32_t start, int32_t token, struct npu_error *error);
/* Merges neighbours, best priority first, until nothing merges. O(n log n). */
enum npu_status merge_work_run(struct merge_work *work, merge_finder *find, const void *context,
                               struct npu_error *error);
void merge_work_free(struct merge_work *work);

/* -- listed merges: tokenizer_merge_table.c ------------------------------------------------------------------------ */

struct merge_slot;

/* tokenizer.ggml.merges: which two tokens make which third; the order of the list is the priority. */
struct merge_table {
    struct merge_slot *slots; /* hash table */
    uint32_t mask;
};

/* A half of a merge as it is written in the file to the bytes it stands for, at most length; false: it stands for none. */
typedef bool merge_decoder(const char *written, size_t length, char *out, size_t *ret_length);

enum npu_status merge_table_load(struct merge_table *table, const struct gguf_file *file,
                                 const struct vocabulary *vocabulary, merge_decoder *decode, struct npu_error *error);
void merge_table_free(struct merge_table *table);
merge_finder merge_table_find; /* its context is the table; symbols whose token is -1 merge with nothing */

/* -- encoders ----------------------------------------------------------------------------------------------------- */

struct text_encoder;

struct text_encoder_interface {
    /* Appends the tokens of text, which holds no special token. */
    enum npu_status (*encode)(const struct text_encoder *encoder, const char *text, size_t length,
                              struct token_list *tokens, struct npu_error *error);
    void (*destroy)(struct text_encoder *encoder);
};

/* The head of every encoder; constant after creation. */
struct text_encoder {
    const struct text_encoder_interface *interface;
    bool adds_bos; /* unless the file says otherwise */
    bool always_adds_bos; /* whatever the file says */
};

/* Each borrows the vocabulary, which must outlive it. */
typedef enum npu_status text_encoder_creator(struct text_encoder **ret_encoder, const struct gguf_file *file,
                                             const struct vocabulary *vocabulary, struct npu_error *error);

/* Byte-level BPE (tokenizer.ggml.model = gpt2): tokenizer_byte_bpe.c */
token_decoder byte_bpe_decode_token;
text_encoder_creator byte_bpe_create;

/* SentencePiece BPE (tokenizer.ggml.model = llama): tokenizer_sentencepiece.c */
token_decoder sentencepiece_decode_token;
text_encoder_creator sentencepiece_create;
/* U+2581, the written form of a space, to spaces; returns how many bytes it wrote to out, at most length. */
size_t sentencepiece_plain_spaces(const char *text, size_t length, char *out);
/* The tokens <0x00> to <0xFF>; -1 where the vocabulary has none. */
void sentencepiece_find_byte_tokens(const struct vocabulary *vocabulary, int32_t byte_tokens[256]);

/* Gemma 4's BPE (tokenizer.ggml.model = gemma4), written like SentencePiece: tokenizer_gemma4.c */
text_encoder_creator gemma4_create;

#endif
