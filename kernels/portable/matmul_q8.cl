/* One tile of 8 weight rows (LAYOUT_Q8, or LAYOUT_Q8S with the block scales s) times n rows of quantized activations, n at
 * most 4 and known when compiled. Per block, in order: sum = fma(products (* s), d * scale, sum); s is of six bits, so that
 * 32 * 127 * 127 * s has its exact float. */
INLINE void tile_q8_scaled(const int n, const int scaled, __global const uchar *tile, int blocks, struct quantized_row x,
                           float8 *sum)
{
    for (int r = 0; r < n; r++)
        sum[r] = 0.0f;
    for (int b = 0; b < blocks; b++) {
        __global const uchar *w = tile + (size_t)b * 288;
        float8 d = vload_half8(0, (__global const half *)(w + 256));
        int8 products[4] = {0, 0, 0, 0};
        for (int j = 0; j < 8; j++) {
            int8 words = vload8(j, (__global const int *)w);
            for (int i = 0; i < 4; i++) {
                int8 weights = (words << (int8)(24 - 8 * i)) >> (int8)24;
                for (int r = 0; r < n; r++) {
                    __global const char *values = (__global const char *)(x.values + ((size_t)r * blocks + b) * 8);
                    products[r] += weights * (int)values[4 * j + i];
                }
            }
        }
        int8 s = scaled ? convert_int8(vload8(0, (__global const char *)(w + 272))) : 1;
        for (int r = 0; r < n; r++)
            sum[r] = multiply_add(convert_float8(products[r] * s), d * x.scales[(size_t)r * blocks + b], sum[r]);
    }
}

INLINE void tile_q8(const int n, __global const uchar *tile, int blocks, struct quantized_row x, float8 *sum)
{
    tile_q8_scaled(n, 0, tile, blocks, x, sum);
}

INLINE void tile_q8s(const int n, __global const uchar *tile, int blocks, struct quantized_row x, float8 *sum)
{
    tile_q8_scaled(n, 1, tile, blocks, x, sum);
}
