/* Weight tiles times rows. A unit is a tile of 8 weight rows with ROWS_PER_PASS activation rows (4, so that weights are
 * unpacked once for four rows, or 1 on drivers whose compiler cannot take the unrolled code). A lane is a weight row and its elements are taken in order: one row gives the same
 * bits whether it comes alone (decode) or among 256 (prefill). */
INLINE void tile_float(const int n, const int layout, __global const uchar *tile, int n_in,
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
                even[r] = multiply_add(w, (float8)x[(size_t)r * stride + i], even[r]);
        else
            for (int r = 0; r < n; r++)
                odd[r] = multiply_add(w, (float8)x[(size_t)r * stride + i], odd[r]);
    }
    for (int r = 0; r < n; r++)
        sum[r] = even[r] + odd[r];
}

INLINE size_t tile_bytes(int layout, int n_in)
{
    switch (layout) {
    case LAYOUT_F32:
        return (size_t)n_in * 32;
    case LAYOUT_Q4:
        return (size_t)(n_in / 32) * 160;
    case LAYOUT_Q8:
    case LAYOUT_Q8S:
        return (size_t)(n_in / 32) * 288;
    case LAYOUT_Q2:
        return (size_t)(n_in / 32) * 128;
    case LAYOUT_Q5:
    case LAYOUT_Q4K:
        return (size_t)(n_in / 32) * 192;
    case LAYOUT_Q6:
    case LAYOUT_Q5K:
        return (size_t)(n_in / 32) * 224;
    default:
        return (size_t)n_in * 16;
    }
}

INLINE void store_sums(const int n, const struct context *c, __global const struct op_entry *e, int row, int tile,
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

/* The loop over units, once per layout, so that each inner loop is compiled for its layout and row count. A worker's
 * share runs through all rows of a tile before the next, so a tile's weights come from memory once. */
#if ROWS_PER_PASS == 4
#define MATMUL_ROWS(TILE, argument)  \
    if (rows - row >= 4)             \
        TILE(4, argument);           \
    else if (rows - row == 3)        \
        TILE(3, argument);           \
    else if (rows - row == 2)        \
        TILE(2, argument);           \
    else                             \
        TILE(1, argument);
#else
#define MATMUL_ROWS(TILE, argument) TILE(1, argument);
#endif
#define MATMUL_LOOP(TILE, argument)                                                     \
    for (int unit = begin; unit < end; unit++) {                                        \
        int tile = unit / groups, row = unit % groups * ROWS_PER_PASS;                  \
        __global const uchar *weights = first + (size_t)tile * bytes;                   \
        MATMUL_ROWS(TILE, argument)                                                     \
    }

/* A bit of LAYOUTS for each layout that the model has: the others are not compiled. */
#define HAS_LAYOUT(number) (LAYOUTS >> number & 1)

static void op_matmul(const struct context *c, __global const struct op_entry *e)
{
    int rows = row_count(c, e), tiles = (e->n_out + 7) / 8, groups = (rows + ROWS_PER_PASS - 1) / ROWS_PER_PASS;
    int begin = share_begin(c, tiles * groups), end = share_end(c, tiles * groups);
    __global const uchar *first = weight_tiles(c, e);
    size_t bytes = tile_bytes(e->layout, e->n_in);
    switch (e->layout) {
#if HAS_LAYOUT(3)
    case LAYOUT_Q4:
        MATMUL_LOOP(TILE_QUANTIZED, tile_q4)
        break;
#endif
#if HAS_LAYOUT(4)
    case LAYOUT_Q8:
        MATMUL_LOOP(TILE_QUANTIZED, tile_q8)
        break;
#endif
#if HAS_LAYOUT(5)
    case LAYOUT_Q6:
        MATMUL_LOOP(TILE_QUANTIZED, tile_q6)
        break;
#endif
#if HAS_LAYOUT(6)
    case LAYOUT_Q5:
        MATMUL_LOOP(TILE_QUANTIZED, tile_q5)
        break;
#endif
#if HAS_LAYOUT(7)
    case LAYOUT_Q4K:
        MATMUL_LOOP(TILE_QUANTIZED, tile_q4k)
        break;
#endif
#if HAS_LAYOUT(8)
    case LAYOUT_Q5K:
        MATMUL_LOOP(TILE_QUANTIZED, tile_q5k)
        break;
#endif
#if HAS_LAYOUT(9)
    case LAYOUT_Q8S:
        MATMUL_LOOP(TILE_QUANTIZED, tile_q8s)
        break;
#endif
#if HAS_LAYOUT(10)
    case LAYOUT_Q2:
        MATMUL_LOOP(TILE_QUANTIZED, tile_q2)
        break;
#endif
#if HAS_LAYOUT(0)
    case LAYOUT_F32:
        MATMUL_LOOP(TILE_FLOAT, LAYOUT_F32)
        break;
#endif
#if HAS_LAYOUT(1)
    case LAYOUT_F16:
        MATMUL_LOOP(TILE_FLOAT, LAYOUT_F16)
        break;
#endif
#if HAS_LAYOUT(2)
    case LAYOUT_BF16:
        MATMUL_LOOP(TILE_FLOAT, LAYOUT_BF16)
        break;
#endif
    }
}
