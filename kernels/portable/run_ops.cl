/* The kernels. All take the same arguments, so that host code is the same for all.
 * run_ops walks entries [first, last) of the op table in one launch; work-groups meet at a barrier in global memory where
 * an entry asks for it. Where that cannot be, each kind of entry has a kernel of its own, run_KIND, that runs entry first
 * alone: small kernels compile fast and leave registers to GPUs. */
#if WEIGHT_SEGMENTS > 2
#define WEIGHT_ARGUMENTS                                                                                             \
    __global const uchar *weights0, __global const uchar *weights1, __global const uchar *weights2,                 \
        __global const uchar *weights3
#elif WEIGHT_SEGMENTS > 1
#define WEIGHT_ARGUMENTS __global const uchar *weights0, __global const uchar *weights1
#else
#define WEIGHT_ARGUMENTS __global const uchar *weights0
#endif
#if KV_SEGMENTS > 2
#define KV_ARGUMENTS __global kv_element *kv0, __global kv_element *kv1, __global kv_element *kv2, __global kv_element *kv3
#elif KV_SEGMENTS > 1
#define KV_ARGUMENTS __global kv_element *kv0, __global kv_element *kv1
#else
#define KV_ARGUMENTS __global kv_element *kv0
#endif

#define RUN_ARGUMENTS                                                                                                      \
    __global const struct op_entry *table, int first, int last, __global int *sync, int spin_limit,                          \
        __global const int *input, __global float *arena, __global const float *vectors, int blocks_per_segment,             \
        int block_elements, WEIGHT_ARGUMENTS, KV_ARGUMENTS

#if WEIGHT_SEGMENTS > 2
#define SET_WEIGHTS(c) (c).weights[0] = weights0, (c).weights[1] = weights1, (c).weights[2] = weights2, (c).weights[3] = weights3
#elif WEIGHT_SEGMENTS > 1
#define SET_WEIGHTS(c) (c).weights[0] = weights0, (c).weights[1] = weights1
#else
#define SET_WEIGHTS(c) (c).weights[0] = weights0
#endif
#if KV_SEGMENTS > 2
#define SET_KV(c) (c).kv[0] = kv0, (c).kv[1] = kv1, (c).kv[2] = kv2, (c).kv[3] = kv3
#elif KV_SEGMENTS > 1
#define SET_KV(c) (c).kv[0] = kv0, (c).kv[1] = kv1
#else
#define SET_KV(c) (c).kv[0] = kv0
#endif
#define SET_CONTEXT(c)                                                                                 \
    (c).input = input, (c).arena = arena, (c).vectors = vectors, (c).blocks_per_segment = blocks_per_segment, \
    (c).block_elements = block_elements, (c).worker = (int)get_global_id(0),                           \
    (c).workers = (int)get_global_size(0), SET_WEIGHTS(c), SET_KV(c)

/* The host reads this to know that the step is done. */
INLINE void stamp(const struct context *c)
{
    if (c->worker == 0)
        ((__global int *)c->arena)[c->input[INPUT_DONE]] = c->input[INPUT_STAMP];
}

#if ONE_LAUNCH
static void run_entry(const struct context *c, __global const struct op_entry *e)
{
    switch (e->kind) {
    case ENTRY_EMBED:
        op_embed(c, e);
        break;
    case ENTRY_NORM:
        op_norm(c, e);
        break;
    case ENTRY_MATMUL:
        op_matmul(c, e);
        break;
    case ENTRY_HEADS:
        op_heads(c, e);
        break;
    case ENTRY_ATTENTION:
        op_attention(c, e);
        break;
    case ENTRY_ATTENTION_MERGE:
        op_attention_merge(c, e);
        break;
    case ENTRY_GATED:
        op_gated(c, e);
        break;
    case ENTRY_ADD:
    case ENTRY_SCALE:
    case ENTRY_SOFTCAP:
    case ENTRY_QUANTIZE:
        op_elementwise(c, e);
        break;
    case ENTRY_GATHER:
        op_gather(c, e);
        break;
    case ENTRY_SELECT:
        op_select(c, e);
        break;
    case ENTRY_SELECT_MERGE:
        op_select_merge(c, e);
        break;
    }
}

__kernel void run_ops(RUN_ARGUMENTS)
{
    struct context c;
    SET_CONTEXT(c);
    int met = 0, spins = spin_limit;
    for (int i = first; i < last; i++) {
        run_entry(&c, table + i);
        /* One work-item per group: the barrier between groups is all that is needed. */
        if (c.workers > 1 && (table[i].flags & FLAG_BARRIER) && i + 1 < last &&
            !meet(sync, ++met * c.workers, &spins))
            return;
    }
    /* So that the stamp says that every group has done its share. */
    if (c.workers > 1 && last - first > 1 && !meet(sync, ++met * c.workers, &spins))
        return;
    stamp(&c);
}
#else
#define ENTRY_KERNEL(name, op)        \
    __kernel void name(RUN_ARGUMENTS) \
    {                                 \
        struct context c;             \
        SET_CONTEXT(c);               \
        op(&c, table + first);        \
        stamp(&c);                    \
    }

ENTRY_KERNEL(run_embed, op_embed)
ENTRY_KERNEL(run_norm, op_norm)
ENTRY_KERNEL(run_matmul, op_matmul)
ENTRY_KERNEL(run_heads, op_heads)
ENTRY_KERNEL(run_attention, op_attention)
ENTRY_KERNEL(run_attention_merge, op_attention_merge)
ENTRY_KERNEL(run_gated, op_gated)
ENTRY_KERNEL(run_add, op_elementwise)
ENTRY_KERNEL(run_scale, op_elementwise)
ENTRY_KERNEL(run_softcap, op_elementwise)
ENTRY_KERNEL(run_quantize, op_elementwise)
ENTRY_KERNEL(run_gather, op_gather)
ENTRY_KERNEL(run_select, op_select)
ENTRY_KERNEL(run_select_merge, op_select_merge)
#endif
