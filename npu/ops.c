#include "npu/ops.h"

#include <stdlib.h>
#include <string.h>

int graph_activation(struct op_graph *graph, const char *name, int width)
{
    for (int i = 0; i < graph->n_activations; i++) {
        if (strcmp(graph->activations[i].name, name) == 0) {
            if (graph->activations[i].width < width)
                graph->activations[i].width = width; /* layers may differ in width: room for the widest */
            return i;
        }
    }
    if (graph->n_activations == GRAPH_MAX_ACTIVATIONS) {
        graph->failed = true;
        return 0;
    }
    graph->activations[graph->n_activations] = (struct activation){name, width};
    return graph->n_activations++;
}

struct op *graph_add(struct op_graph *graph, enum op_kind kind, int layer)
{
    if (graph->n_ops == graph->capacity) {
        int capacity = graph->capacity ? graph->capacity * 2 : 256;
        struct op *ops = realloc(graph->ops, (size_t)capacity * sizeof *ops);
        if (ops == NULL) {
            graph->failed = true;
            return &graph->sink; /* keeps builders free of checks; graph_finish reports the failure */
        }
        graph->ops = ops;
        graph->capacity = capacity;
    }
    struct op *op = &graph->ops[graph->n_ops++];
    *op = (struct op){.kind = kind,
                      .layer = layer,
                      .in = NO_INDEX,
                      .in2 = NO_INDEX,
                      .out = NO_INDEX,
                      .rope = NO_INDEX,
                      .kv_layer = NO_INDEX,
                      .scale = 1.0f};
    return op;
}

enum npu_status graph_finish(struct op_graph *graph, struct npu_error *error)
{
    graph_add(graph, OP_GATHER, NO_INDEX);
    if (graph->failed)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the op list");
    int after = 0;
    for (int i = 0; i < graph->n_ops; i++) {
        if (graph->ops[i].kind == OP_KV_WRITE)
            after = i + 1;
    }
    struct op gather = graph->ops[graph->n_ops - 1];
    memmove(&graph->ops[after + 1], &graph->ops[after], (size_t)(graph->n_ops - 1 - after) * sizeof gather);
    graph->ops[after] = gather;
    return NPU_OK;
}

void graph_destroy(struct op_graph *graph)
{
    free(graph->ops);
    *graph = (struct op_graph){0};
}

const char *op_kind_name(enum op_kind kind)
{
    static const char *const names[] = {
        [OP_EMBED] = "embed",       [OP_RMS_NORM] = "rms_norm",   [OP_MATMUL] = "matmul", [OP_ROPE] = "rope",
        [OP_KV_WRITE] = "kv_write", [OP_ATTENTION] = "attention", [OP_GATED] = "gated",   [OP_ADD] = "add",
        [OP_SCALE] = "scale",       [OP_SOFTCAP] = "softcap",     [OP_LOOKUP] = "lookup", [OP_GATHER] = "gather",
    };
    return names[kind];
}

void graph_live_activations(const struct op_graph *graph, int index, bool live[GRAPH_MAX_ACTIVATIONS])
{
    bool settled[GRAPH_MAX_ACTIVATIONS] = {false};
    memset(live, 0, GRAPH_MAX_ACTIVATIONS * sizeof live[0]);
    for (int i = index; i < graph->n_ops; i++) {
        const struct op *op = &graph->ops[i];
        int reads[3] = {op->in, op->in2, op->kind == OP_ROPE ? op->out : NO_INDEX};
        for (int r = 0; r < 3; r++) {
            if (reads[r] != NO_INDEX && !settled[reads[r]])
                settled[reads[r]] = live[reads[r]] = true;
        }
        if (op->out != NO_INDEX)
            settled[op->out] = true;
    }
}
