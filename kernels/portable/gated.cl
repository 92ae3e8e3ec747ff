/* out = activation(in) * in2. Units are blocks of 32 elements of a row (the last may be shorter). */
INLINE float8 activate(float8 x, int gelu)
{
    if (gelu) {
        /* 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3) */
        float8 u = 0.797884560802865f * x * multiply_add(0.044715f * x, x, (float8)1.0f);
        return x / (1.0f + exp8(-2.0f * u));
    }
    return x / (1.0f + exp8(-x));
}

static void op_gated(const struct context *c, __global const struct op_entry *e)
{
    int rows = row_count(c, e), n = e->n_in, blocks = (n + 31) / 32;
    int begin = share_begin(c, rows * blocks), end = share_end(c, rows * blocks);
    int gelu = e->flags & FLAG_GELU;
    for (int unit = begin; unit < end; unit++) {
        int row = unit / blocks, block = unit % blocks;
        __global const float *gate = c->arena + e->in + (size_t)row * e->in_stride + block * 32;
        __global const float *up = c->arena + e->in2 + (size_t)row * e->in2_stride + block * 32;
        __global float *out = c->arena + e->out + (size_t)row * e->out_stride + block * 32;
        int length = min(32, n - block * 32);
        if (length == 32) {
            float8 y[4];
            for (int i = 0; i < 4; i++) {
                y[i] = activate(vload8(i, gate), gelu) * vload8(i, up);
                vstore8(y[i], i, out);
            }
            if (e->flags & FLAG_QUANTIZE)
                quantize_block(y[0], y[1], y[2], y[3], quantized_at(c, e, row), block);
        } else {
            for (int i = 0; i < length; i++)
                out[i] = activate((float8)gate[i], gelu).s0 * up[i];
        }
    }
}
