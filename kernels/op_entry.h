/* The plan's op table and the step's input buffer, as host and kernels both see them (valid C and OpenCL C).
 *
 * A plan is a table of op_entry in a device buffer, made once per bucket and never changed. What changes from step to
 * step is the input buffer alone. All places in the activation arena are offsets in 4-byte words.
 *
 * Quantized activations (for int8 products), per row of n values, n a multiple of 32:
 *   values  n int8, as n/4 words;   scales  n/32 floats d;   sums  n/32 floats d * (sum of the 32 int8);
 *   halves  n/32 words: sum of the first 16 int8 in the low, of the second 16 in the high 16 bits.
 * They stand in the arena at `quantized` in that order, each part with room for the row set's capacity of rows. */
#ifndef KERNELS_OP_ENTRY_H
#define KERNELS_OP_ENTRY_H

enum entry_kind {
    ENTRY_EMBED,            /* rows of the token table */
    ENTRY_NORM,             /* rms norm of n_heads groups of head_size, optional quantized copy */
    ENTRY_MATMUL,           /* weight tiles times rows */
    ENTRY_HEADS,            /* per head: optional rms norm, optional rope, to place or to the KV cache */
    ENTRY_ATTENTION,        /* partial softmax sums over splits of 256 positions */
    ENTRY_ATTENTION_MERGE,  /* puts the splits together, optional quantized copy */
    ENTRY_GATED,            /* activation(in) * in2, optional quantized copy */
    ENTRY_ADD,              /* in + in2 */
    ENTRY_SCALE,            /* scale * in */
    ENTRY_SOFTCAP,          /* scale * tanh(in / scale) */
    ENTRY_QUANTIZE,         /* the quantized copy of in, where no other entry made it */
    ENTRY_GATHER,           /* copies returning rows to their own buffers */
    ENTRY_SELECT,           /* best or top k of a chunk of the vocabulary */
    ENTRY_SELECT_MERGE,     /* of all chunks */
    ENTRY_KINDS,
};

/* Layouts of packed weights: drawn in npu/opencl/pack.h. */
enum weight_layout {
    LAYOUT_F32 = 0,
    LAYOUT_F16 = 1,
    LAYOUT_BF16 = 2,
    LAYOUT_Q4 = 3,
    LAYOUT_Q8 = 4,
    LAYOUT_Q6 = 5,
    LAYOUT_Q5 = 6,
    LAYOUT_Q4K = 7,
    LAYOUT_Q5K = 8,
    LAYOUT_Q8S = 9,
    LAYOUT_Q2 = 10,
};

enum entry_destination { DESTINATION_PLACE, DESTINATION_KEYS, DESTINATION_VALUES };

enum entry_flags {
    FLAG_BARRIER = 1,     /* later entries read what this one writes */
    FLAG_QUANTIZE = 2,    /* also write the quantized copy of out */
    FLAG_ACCUMULATE = 4,  /* out += ... */
    FLAG_INTERLEAVED = 8, /* rope turns pairs (2i, 2i+1), else (i, i + dims/2) */
    FLAG_GELU = 16,       /* ENTRY_GATED: gelu (tanh form), else silu */
    FLAG_SLIDING = 32,    /* ENTRY_ATTENTION: the sliding window's visible range */
};

struct op_entry {
    int kind, flags;
    int layer;
    int row_set;  /* 0: all rows, 1: returning rows */
    int capacity; /* rows that the row set has room for */
    int in, in_stride;
    int in2, in2_stride;
    int out, out_stride;
    int quantized;       /* ENTRY_MATMUL: quantized input, or -1; others: where the quantized copy goes */
    int quantized_width; /* values per row there */
    int layout;
    int weight_segment;
    unsigned weight_offset; /* in units of 64 bytes */
    int n_in, n_out;
    int vector; /* norm weights or bias: float offset in the vectors buffer, or -1 */
    int n_heads, head_size;
    int kv_heads;
    int kv_offset; /* in KV elements inside a block: keys of head h at kv_offset + h * 32 * head_size, values after all keys */
    int rope;      /* word offset of this rope's angles in the input buffer, or -1 */
    int rope_dims;
    int scratch, scratch_stride; /* ENTRY_ATTENTION (splits as units) and ENTRY_SELECT: partial results, per row */
    int splits;                  /* room for splits or chunks there */
    int state;                   /* ENTRY_ATTENTION: running sums of walked splits, per row and head */
    float scale, epsilon;
    int padding;
};

/* The step's input buffer, in words. Behind INPUT_TABLES stand the block tables, then the rope angles. */
enum {
    INPUT_N_ROWS = 0,  /* [set]: rows, returning rows */
    INPUT_N_TILES = 2, /* [set]: attention tiles */
    INPUT_SPLIT = 4,   /* [set]: 1 where every tile is one row and splits are separate units */
    INPUT_STAMP = 6,   /* number of the step: worker 0 writes it to the arena word INPUT_DONE at the end */
    INPUT_DONE = 7,
    INPUT_ARRIVED = 16,   /* the barrier's counter, and whether it was given up: cache lines of their own */
    INPUT_ABANDONED = 32,
    INPUT_ROWS = 64,   /* INPUT_ROW_WORDS each */
    INPUT_ROW_WORDS = 8,
    INPUT_MAX_ROWS = 256,
    INPUT_RETURNING = INPUT_ROWS + INPUT_MAX_ROWS * INPUT_ROW_WORDS, /* row numbers, ascending */
    INPUT_TILES = INPUT_RETURNING + INPUT_MAX_ROWS, /* [set][256]: first row * 65536 + number of rows */
    INPUT_TABLES = INPUT_TILES + 2 * INPUT_MAX_ROWS,
};

/* Words of a row. */
enum {
    ROW_TOKEN,
    ROW_POSITION,
    ROW_BEGIN_FULL,
    ROW_BEGIN_SLIDING,
    ROW_END,
    ROW_TABLE,   /* word offset of its block table in the input buffer */
    ROW_RETURNS, /* enum row_return + 256 * top k */
    ROW_EMBEDDING, /* word offset in the arena of the vector that replaces the hidden state, or -1 */
};

enum {
    KV_TOKENS = 32,        /* positions per block */
    SPLIT_TOKENS = 256,    /* positions per split of attention */
    TILE_ROWS = 16,        /* rows of one run that share K/V loads */
    SPLIT_ROWS = 16,       /* at most that many rows have their splits as units */
    SELECT_CHUNK = 2048,   /* logits per unit of a selection */
    SELECT_MAX = 128,      /* largest top k */
    RETURNS_BEST = 1,
    RETURNS_TOP_K = 2,
};

#endif
