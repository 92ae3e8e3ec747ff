/* The forward pass of a row as a list of ops: the single description of an architecture. The reference executor
 * interprets it in float32; the OpenCL executor lowers it to a static plan.
 *
 * Activations are named vectors of floats, one per row. Every op reads and writes activations of its own row only;
 * rows meet in attention alone, through the K/V that OP_KV_WRITE stores. Immutable once the model is loaded. */
#ifndef NPU_OPS_H
#define NPU_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "npu/error.h"

enum op_kind {
    OP_EMBED,     /* out = scale * row `token` of weight (or the row's own embedding vector, unscaled) */
    OP_RMS_NORM,  /* out = in / sqrt(mean(in^2) + epsilon) * weight, for each group of `head_size` elements */
    OP_MATMUL,    /* out = weight in + bias */
    OP_ROPE,      /* in place on out: n_heads vectors of head_size, rotated by the row's position with `rope` */
    OP_KV_WRITE,  /* stores in (K) and in2 (V) at the row's position of kv_layer */
    OP_ATTENTION, /* out = softmax(scale * in K^T) V over the row's visible positions of kv_layer */
    OP_GATED,     /* out = activation(in) * in2, in2 from its element in2_offset on */
    OP_ADD,       /* out = in + in2 */
    OP_SCALE,     /* out = scale * in */
    OP_SOFTCAP,   /* out = scale * tanh(in / scale): logits stay below scale */
    OP_LOOKUP,    /* out = scale * row `token` of weight, whatever embedding the row brings (per-layer embeddings) */
    OP_GATHER,    /* from here on only rows that return something are computed */
};

enum activation_function { ACTIVATION_SILU, ACTIVATION_GELU_TANH };

enum window { WINDOW_FULL, WINDOW_SLIDING };

enum { NO_INDEX = -1 };

/* A matrix of n_out rows of n_in elements (GGUF order), or a vector (n_out 1). Borrowed from the mapped file. */
struct weight {
    const struct gguf_tensor *tensor;
    const char *name;
    uint32_t type;
    int64_t n_in, n_out;
    const void *data;
};

struct op {
    enum op_kind kind;
    int layer; /* NO_INDEX outside layers */
    int in, in2, out; /* activations, or NO_INDEX */
    const struct weight *weight; /* NULL: none (a norm without weights) */
    const struct weight *bias;   /* OP_MATMUL: NULL or a vector */
    int n_heads, head_size;      /* OP_RMS_NORM: groups; OP_ROPE; OP_ATTENTION: query heads */
    int width;                   /* OP_GATED, OP_ADD, OP_SCALE, OP_SOFTCAP: floats of each vector (layers may differ) */
    int in2_offset;              /* OP_GATED */
    int rope;                    /* OP_ROPE: index into model->ropes */
    int kv_layer;                /* OP_KV_WRITE, OP_ATTENTION */
    enum window window;          /* OP_ATTENTION */
    enum activation_function function;
    float scale;
    float epsilon;
};

struct activation {
    const char *name;
    int width; /* floats per row */
};

enum { GRAPH_MAX_ACTIVATIONS = 32 };

struct op_graph {
    struct op *ops;
    int n_ops, capacity;
    struct activation activations[GRAPH_MAX_ACTIVATIONS];
    int n_activations;
    int hidden; /* the activation that holds the output of the final norm */
    int logits; /* the last op's output */
    bool failed;    /* memory ran out while building */
    struct op sink; /* where builders write after that */
};

/* Building (arch/ only). graph_activation finds or makes an activation; its width must agree. */
int graph_activation(struct op_graph *graph, const char *name, int width);
struct op *graph_add(struct op_graph *graph, enum op_kind kind, int layer);
/* Puts OP_GATHER right after the last OP_KV_WRITE, so that what follows runs for returning rows alone. */
enum npu_status graph_finish(struct op_graph *graph, struct npu_error *error);
void graph_destroy(struct op_graph *graph);

const char *op_kind_name(enum op_kind kind);

/* Which activations are read at or after op `index` before they are written again: live[a] for each activation. */
void graph_live_activations(const struct op_graph *graph, int index, bool live[GRAPH_MAX_ACTIVATIONS]);

#endif
