/* Per head of a row: optional rms norm, optional rope; the result goes back to its place, or into the KV cache.
 *
 * A KV block holds, for each KV layer: keys of head h as [position / 8][element][position % 8], values of head h as
 * [position][element], so that one vector is 8 positions of a key element, or 8 elements of a value. */
INLINE void rope_head(float *x, __global const float *angles, int dims, int interleaved)
{
    int half_dims = dims / 2;
    for (int i = 0; i < half_dims; i++) {
        int first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + half_dims;
        float cosine = angles[i], sine = angles[half_dims + i];
        float a = x[first], b = x[second];
        x[first] = multiply_add(a, cosine, -(b * sine));
        x[second] = multiply_add(b, cosine, a * sine);
    }
}

static void op_heads(const struct context *c, __global const struct op_entry *e)
{
    int rows = row_count(c, e), size = e->head_size;
    int units = rows * e->n_heads;
    float x[MAX_HEAD_SIZE];
    for (int unit = c->worker; unit < units; unit += c->workers) {
        int row = unit / e->n_heads, head = unit % e->n_heads;
        __global const int *words = row_words(c, e, row);
        __global const float *in = c->arena + e->in + (size_t)row * e->in_stride + head * size;
        float inverse = 1.0f;
        if (e->epsilon > 0.0f)
            inverse = rms_inverse(in, size, e->epsilon);
        for (int i = 0; i < size; i++) {
            float v = in[i];
            if (e->epsilon > 0.0f)
                v = v * inverse;
            if (e->vector >= 0)
                v = v * c->vectors[e->vector + i];
            x[i] = v;
        }
        if (e->rope >= 0) {
            int index = e->row_set ? c->input[INPUT_RETURNING + row] : row;
            rope_head(x, (__global const float *)(c->input + e->rope) + index * e->rope_dims, e->rope_dims,
                      e->flags & FLAG_INTERLEAVED);
        }
        if (e->layout == DESTINATION_PLACE) {
            __global float *out = c->arena + e->out + (size_t)row * e->out_stride + head * size;
            for (int i = 0; i < size; i++)
                out[i] = x[i];
            continue;
        }
        int position = words[ROW_POSITION];
        int block = c->input[words[ROW_TABLE] + position / KV_TOKENS], slot = position % KV_TOKENS;
        __global kv_element *base = kv_block(c, block) + e->kv_offset + head * KV_TOKENS * size;
        if (e->layout == DESTINATION_KEYS) {
            __global kv_element *keys = base + (slot / 8) * 8 * size + slot % 8;
            for (int i = 0; i < size; i++)
                kv_store(x[i], keys + i * 8);
        } else {
            __global kv_element *values = base + slot * size;
            for (int i = 0; i < size; i++)
                kv_store(x[i], values + i);
        }
    }
}
