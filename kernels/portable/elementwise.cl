/* Ops that work element by element. Units are blocks of 32 elements of a row (the last may be shorter). */
INLINE float softcap(float x, float cap)
{
    /* tanh(u) = 1 - 2 / (1 + exp(2u)) */
    float u = fmin(fmax(x / cap, -40.0f), 40.0f);
    return cap * (1.0f - 2.0f / (1.0f + exp1(2.0f * u)));
}

static void op_elementwise(const struct context *c, __global const struct op_entry *e)
{
    int rows = row_count(c, e), n = e->n_in, blocks = (n + 31) / 32;
    int begin = share_begin(c, rows * blocks), end = share_end(c, rows * blocks);
    for (int unit = begin; unit < end; unit++) {
        int row = unit / blocks, block = unit % blocks;
        __global const float *in = c->arena + e->in + (size_t)row * e->in_stride + block * 32;
        __global const float *in2 = c->arena + e->in2 + (size_t)row * e->in2_stride + block * 32;
        __global float *out = c->arena + e->out + (size_t)row * e->out_stride + block * 32;
        int length = min(32, n - block * 32);
        switch (e->kind) {
        case ENTRY_ADD:
            for (int i = 0; i < length; i++)
                out[i] = in[i] + in2[i];
            break;
        case ENTRY_SCALE:
            for (int i = 0; i < length; i++)
                out[i] = in[i] * e->scale;
            break;
        case ENTRY_SOFTCAP:
            for (int i = 0; i < length; i++)
                out[i] = softcap(in[i], e->scale);
            break;
        case ENTRY_QUANTIZE:
            quantize_block(vload8(0, in), vload8(1, in), vload8(2, in), vload8(3, in), quantized_at(c, e, row), block);
            break;
        }
    }
}

/* Returning rows get a place of their own, so that what follows runs for them alone. */
static void op_gather(const struct context *c, __global const struct op_entry *e)
{
    int rows = c->input[INPUT_N_ROWS + 1];
    for (int row = c->worker; row < rows; row += c->workers) {
        __global const float *in = c->arena + e->in + (size_t)c->input[INPUT_RETURNING + row] * e->in_stride;
        __global float *out = c->arena + e->out + (size_t)row * e->out_stride;
        for (int i = 0; i < e->n_in; i++)
            out[i] = in[i];
    }
}
