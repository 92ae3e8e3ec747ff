/* out = in / sqrt(mean(in^2) + epsilon) * weights, for each of n_heads groups of head_size elements of a row; with
 * FLAG_ACCUMULATE it is added to out. A unit is a group. */
INLINE float rms_inverse(__global const float *x, int n, float epsilon)
{
    float8 squares = 0.0f;
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        float8 v = vload8(0, x + i);
        squares = multiply_add(v, v, squares);
    }
    float total = sum8(squares);
    for (; i < n; i++)
        total = multiply_add(x[i], x[i], total);
    return 1.0f / sqrt(total / (float)n + epsilon);
}

static void op_norm(const struct context *c, __global const struct op_entry *e)
{
    int units = row_count(c, e) * e->n_heads, n = e->head_size;
    for (int unit = c->worker; unit < units; unit += c->workers) {
        int row = unit / e->n_heads, group = unit % e->n_heads;
        __global const float *in = c->arena + e->in + (size_t)row * e->in_stride + group * n;
        __global float *out = c->arena + e->out + (size_t)row * e->out_stride + group * n;
        float inverse = rms_inverse(in, n, e->epsilon);
        int i = 0;
        for (; i + 8 <= n; i += 8) {
            float8 v = vload8(0, in + i) * inverse;
            if (e->vector >= 0)
                v = v * vload8(0, c->vectors + e->vector + i);
            if (e->flags & FLAG_ACCUMULATE)
                v = v + vload8(0, out + i);
            vstore8(v, 0, out + i);
        }
        for (; i < n; i++) {
            float v = in[i] * inverse;
            if (e->vector >= 0)
                v = v * c->vectors[e->vector + i];
            if (e->flags & FLAG_ACCUMULATE)
                v = v + out[i];
            out[i] = v;
        }
        if (e->flags & FLAG_QUANTIZE)
            quantize_floats(out, n, quantized_at(c, e, row));
    }
}
