/* The token's row of the embedding table, read out of the packed tiles, times scale; or the vector that the row brings
 * instead, as it is. */
INLINE float half_at(__global const uchar *p, int i)
{
    return vload_half(i, (__global const half *)p);
}

INLINE float tile_element(int layout, __global const uchar *tile, int lane, int i)
{
    int b = i / 32, k = i % 32;
    int word = 4 * lane + k % 4; /* byte of a 32-byte vector: 8 lanes of 4 elements */
    switch (layout) {
    case LAYOUT_F32:
        return ((__global const float *)tile)[i * 8 + lane];
    case LAYOUT_F16:
        return vload_half(i * 8 + lane, (__global const half *)tile);
    case LAYOUT_BF16:
        return as_float((uint)((__global const ushort *)tile)[i * 8 + lane] << 16);
    case LAYOUT_Q4: {
        __global const uchar *w = tile + (size_t)b * 160;
        int q = (w[32 * ((k % 16) / 4) + word] >> (k < 16 ? 0 : 4)) & 15;
        return half_at(w + 128, lane) * (float)q + half_at(w + 144, lane);
    }
    case LAYOUT_Q8: {
        __global const uchar *w = tile + (size_t)b * 288;
        return half_at(w + 256, lane) * (float)(char)w[32 * (k / 4) + word];
    }
    case LAYOUT_Q8S: {
        __global const uchar *w = tile + (size_t)b * 288;
        return half_at(w + 256, lane) * (float)(char)w[272 + lane] * (float)(char)w[32 * (k / 4) + word];
    }
    case LAYOUT_Q2: {
        __global const uchar *w = tile + (size_t)b * 128;
        int q = (w[32 * (k / 16) + word] >> (2 * (k % 16 / 4))) & 3, shift = k < 16 ? 0 : 4;
        float d = half_at(w + 64, lane) * (float)((w[96 + lane] >> shift) & 15);
        return d * (float)q + half_at(w + 80, lane) * (float)((w[104 + lane] >> shift) & 15);
    }
    case LAYOUT_Q5:
    case LAYOUT_Q4K:
    case LAYOUT_Q5K: {
        int five = layout != LAYOUT_Q4K, side = k / 16, j = (k % 16) / 4, scales = five ? 160 : 128;
        __global const uchar *w = tile + (size_t)b * (layout == LAYOUT_Q5K ? 224 : 192);
        int q = (w[32 * j + word] >> (4 * side)) & 15;
        if (five)
            q |= ((w[128 + word] >> (4 * side + j)) & 1) << 4;
        float d = half_at(w + scales, lane), m = half_at(w + scales + 16, lane);
        if (layout != LAYOUT_Q5) {
            d = d * (float)w[scales + 32 + lane];
            m = m * (float)w[scales + 40 + lane];
        }
        return d * (float)q + m;
    }
    default: { /* LAYOUT_Q6 */
        __global const uchar *w = tile + (size_t)b * 224;
        int j = (k % 16) / 4, side = k / 16;
        int low = (w[32 * j + word] >> (4 * side)) & 15;
        int high = (w[128 + 32 * (j / 2) + word] >> (4 * (j % 2) + 2 * side)) & 3;
        int scale = (char)w[192 + 8 * side + lane];
        return half_at(w + 208, lane) * (float)scale * (float)((low | high << 4) - 32);
    }
    }
}

static void op_embed(const struct context *c, __global const struct op_entry *e)
{
    int rows = row_count(c, e);
    __global const uchar *first = weight_tiles(c, e);
    size_t bytes = tile_bytes(e->layout, e->n_in);
    for (int row = c->worker; row < rows; row += c->workers) {
        __global const int *words = row_words(c, e, row);
        __global float *out = c->arena + e->out + (size_t)row * e->out_stride;
        if (words[ROW_EMBEDDING] >= 0) {
            for (int i = 0; i < e->n_in; i++)
                out[i] = c->arena[words[ROW_EMBEDDING] + i];
            continue;
        }
        int token = words[ROW_TOKEN];
        for (int i = 0; i < e->n_in; i++)
            out[i] = tile_element(e->layout, first + (size_t)(token / 8) * bytes, token % 8, i) * e->scale;
    }
}
