/* out = in / sqrt(mean(in^2) + epsilon) * weights, a row a unit. Rows are padded to 8 floats; padding is not read. */
static inline float rms_inverse(__global const float *x, int n, float epsilon)
{
    float8 squares = 0.0f;
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        float8 v = vload8(0, x + i);
        squares = fma(v, v, squares);
    }
    float total = sum8(squares);
    for (; i < n; i++)
        total = fma(x[i], x[i], total);
    return 1.0f / sqrt(total / (float)n + epsilon);
}

static void op_norm(const struct context *c, __global const struct op_entry *e)
{
    int rows = row_count(c, e), n = e->n_in;
    __global const float *weights = c->vectors + e->vector;
    for (int row = c->worker; row < rows; row += c->workers) {
        __global const float *in = c->arena + e->in + (size_t)row * e->in_stride;
        __global float *out = c->arena + e->out + (size_t)row * e->out_stride;
        float inverse = rms_inverse(in, n, e->epsilon);
        int i = 0;
        for (; i + 8 <= n; i += 8) {
            float8 v = vload8(0, in + i) * inverse;
            if (e->vector >= 0)
                v = v * vload8(0, weights + i);
            vstore8(v, 0, out + i);
        }
        for (; i < n; i++)
            out[i] = e->vector >= 0 ? in[i] * inverse * weights[i] : in[i] * inverse;
        if (e->flags & FLAG_QUANTIZE)
            quantize_floats(out, n, quantized_at(c, e, row));
    }
}
