/* Weight tiles times rows. A unit is a tile of 8 weight rows; it meets the activation rows four at a time, so weights
 * are unpacked once for four rows. A lane is a weight row and its elements are taken in order: one row gives the same
 * bits whether it comes alone (decode) or among 256 (prefill). */
static inline void tile_float(const int n, const int layout, __global const uchar *tile, int n_in,
                              __global const float *x, int stride, float8 *sum)
{
    /* Even and odd elements have sums of their own, so that two fused multiply-adds are under way at once. */
    float8 even[4], odd[4];
    for (int r = 0; r < n; r++) {
        even[r] = 0.0f;
        odd[r] = 0.0f;
    }
    for (int i = 0; i < n_in; i++) {
        float8 w;
        if (layout == LAYOUT_F32)
            w = vload8(i, (__global const float *)tile);
        else if (layout == LAYOUT_F16)
            w = vload_half8(i, (__global const half *)tile);
        else
            w = as_float8(convert_uint8(vload8(i, (__global const ushort *)tile)) << (uint8)16);
        if (i % 2 == 0)
            for (int r = 0; r < n; r++)
                even[r] = fma(w, (float8)x[(size_t)r * stride + i], even[r]);
        else
            for (int r = 0; r < n; r++)
                odd[r] = fma(w, (float8)x[(size_t)r * stride + i], odd[r]);
    }
    for (int r = 0; r < n; r++)
        sum[r] = even[r] + odd[r];
}

static inline size_t tile_bytes(int layout, int n_in)
{
    switch (layout) {
    case LAYOUT_F32:
        return (size_t)n_in * 32;
    case LAYOUT_Q4:
        return (size_t)(n_in / 32) * 160;
    case LAYOUT_Q8:
        return (size_t)(n_in / 32) * 288;
    case LAYOUT_Q6:
        return (size_t)(n_in / 32) * 224;
    default:
        return (size_t)n_in * 16;
    }
}

static inline void store_sums(const int n, const struct context *c, __global const struct op_entry *e, int row, int tile,
                              const float8 *sum)
{
    for (int r = 0; r < n; r++) {
        __global float *out = c->arena + e->out + (size_t)(row + r) * e->out_stride + tile * 8;
        float8 v = sum[r];
        if (e->vector >= 0)
            v = v + vload8(0, c->vectors + e->vector + tile * 8);
        if (e->flags & FLAG_ACCUMULATE)
            v = v + vload8(0, out);
        vstore8(v, 0, out);
    }
}

#define TILE_QUANTIZED(n, function)                                                     \
    do {                                                                                \
        float8 sum[4];                                                                  \
        function(n, weights, e->n_in / 32, quantized_at(c, e, row), sum);               \
        store_sums(n, c, e, row, tile, sum);                                            \
    } while (0)

#define TILE_FLOAT(n, layout)                                                                                  \
    do {                                                                                                       \
        float8 sum[4];                                                                                         \
        tile_float(n, layout, weights, e->n_in, c->arena + e->in + (size_t)row * e->in_stride, e->in_stride, sum); \
        store_sums(n, c, e, row, tile, sum);                                                                   \
    } while (0)

/* The loop over tiles and rows, once per layout, so that each inner loop is compiled for its layout and row count. */
#define MATMUL_LOOP(TILE, argument)                                                        \
    for (int tile = begin; tile < end; tile++) {                                           \
        __global const uchar *weights = first + (size_t)tile * bytes;                      \
        int row = 0;                                                                       \
        for (; row + 4 <= rows; row += 4)                                                  \
            TILE(4, argument);                                                             \
        if (rows - row == 3)                                                               \
            TILE(3, argument);                                                             \
        else if (rows - row == 2)                                                          \
            TILE(2, argument);                                                             \
        else if (rows - row == 1)                                                          \
            TILE(1, argument);                                                             \
    }

static void op_matmul(const struct context *c, __global const struct op_entry *e)
{
    int rows = row_count(c, e), tiles = (e->n_out + 7) / 8;
    int begin = share_begin(c, tiles), end = share_end(c, tiles);
    __global const uchar *first = weight_tiles(c, e);
    size_t bytes = tile_bytes(e->layout, e->n_in);
    switch (e->layout) {
    case LAYOUT_Q4:
        MATMUL_LOOP(TILE_QUANTIZED, tile_q4)
        break;
    case LAYOUT_Q8:
        MATMUL_LOOP(TILE_QUANTIZED, tile_q8)
        break;
    case LAYOUT_Q6:
        MATMUL_LOOP(TILE_QUANTIZED, tile_q6)
        break;
    case LAYOUT_F32:
        MATMUL_LOOP(TILE_FLOAT, LAYOUT_F32)
        break;
    case LAYOUT_F16:
        MATMUL_LOOP(TILE_FLOAT, LAYOUT_F16)
        break;
    case LAYOUT_BF16:
        MATMUL_LOOP(TILE_FLOAT, LAYOUT_BF16)
        break;
    }
}
