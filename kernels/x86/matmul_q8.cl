/* As portable/matmul_q8.cl, with pmaddubsw: |w| is unsigned (128 included), the sign moves to the activation. Pair sums
 * stay below 2 * 128 * 127 = 32,512, so each is widened before it meets another. */
INLINE void tile_q8_scaled(const int n, const int scaled, __global const uchar *tile, int blocks, struct quantized_row x,
                           float8 *sum)
{
    const short16_ext ones = (short16_ext)1;
    float8 s[4];
    for (int r = 0; r < n; r++)
        s[r] = 0.0f;
    for (int b = 0; b < blocks; b++) {
        __global const uchar *w = tile + (size_t)b * 288;
        __global const char32 *v = (__global const char32 *)w;
        float8 d = vload_half8(0, (__global const half *)(w + 256));
        for (int line = 0; line < 5; line++)
            prefetch_line(w + PREFETCH_BYTES + 64 * line);
        int8_ext products[4];
        for (int r = 0; r < n; r++)
            products[r] = (int8_ext)0;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            char32 weight = v[j], magnitude = __builtin_ia32_psignb256(weight, weight);
#pragma unroll
            for (int r = 0; r < n; r++) {
                char32 q = broadcast4(x.values[((size_t)r * blocks + b) * 8 + j]);
                products[r] += __builtin_ia32_pmaddwd256(
                    __builtin_ia32_pmaddubsw256(magnitude, __builtin_ia32_psignb256(q, weight)), ones);
            }
        }
        int8 block_scale = scaled ? convert_int8(vload8(0, (__global const char *)(w + 272))) : 1;
        for (int r = 0; r < n; r++)
            s[r] = multiply_add(convert_float8(__builtin_astype(products[r], int8) * block_scale),
                                d * x.scales[(size_t)r * blocks + b], s[r]);
    }
    for (int r = 0; r < n; r++)
        sum[r] = s[r];
}

INLINE void tile_q8(const int n, __global const uchar *tile, int blocks, struct quantized_row x, float8 *sum)
{
    tile_q8_scaled(n, 0, tile, blocks, x, sum);
}

INLINE void tile_q8s(const int n, __global const uchar *tile, int blocks, struct quantized_row x, float8 *sum)
{
    tile_q8_scaled(n, 1, tile, blocks, x, sum);
}
