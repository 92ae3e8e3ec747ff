/* As portable/matmul_q8.cl. With VNNI weights are made unsigned by adding 128, which comes off through the activations'
 * sums; else |w| is unsigned (128 included) and its sign moves to the activation. Pair sums stay below 2 * 128 * 127 =
 * 32,512 there, so each is widened before it meets another. */
#if VNNI_ENCODING
INLINE void q8_products(const int n, __global const char32 *weights, int blocks, int b, struct quantized_row x,
                        int8 *products)
{
    char32 q[8];
#pragma unroll
    for (int j = 0; j < 8; j++)
        q[j] = weights[j] ^ (char32)-128;
#pragma unroll
    for (int r = 0; r < n; r++) {
        size_t at = (size_t)r * blocks + b;
        int halves = x.halves[at], total_activations = ((halves << 16) >> 16) + (halves >> 16);
        products[r] = dot8(q, x.values + at * 8) - 128 * total_activations;
    }
}
#else
INLINE void q8_products(const int n, __global const char32 *weights, int blocks, int b, struct quantized_row x,
                        int8 *products)
{
    const short16_ext ones = (short16_ext)1;
    int8_ext sums[4];
    for (int r = 0; r < n; r++)
        sums[r] = (int8_ext)0;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        char32 weight = weights[j], magnitude = __builtin_ia32_psignb256(weight, weight);
#pragma unroll
        for (int r = 0; r < n; r++) {
            char32 q = broadcast4(x.values[((size_t)r * blocks + b) * 8 + j]);
            sums[r] += __builtin_ia32_pmaddwd256(
                __builtin_ia32_pmaddubsw256(magnitude, __builtin_ia32_psignb256(q, weight)), ones);
        }
    }
    for (int r = 0; r < n; r++)
        products[r] = __builtin_astype(sums[r], int8);
}
#endif

INLINE void tile_q8_scaled(const int n, const int scaled, __global const uchar *tile, int blocks, struct quantized_row x,
                           float8 *sum)
{
    float8 s[4];
    for (int r = 0; r < n; r++)
        s[r] = 0.0f;
    for (int b = 0; b < blocks; b++) {
        __global const uchar *w = tile + (size_t)b * 288;
        float8 d = vload_half8(0, (__global const half *)(w + 256));
        for (int line = 0; line < 5; line++)
            prefetch_line(w + PREFETCH_BYTES + 64 * line);
        int8 products[4];
        q8_products(n, (__global const char32 *)w, blocks, b, x, products);
        int8 block_scale = scaled ? convert_int8(vload8(0, (__global const char *)(w + 272))) : 1;
        for (int r = 0; r < n; r++)
            s[r] = multiply_add(convert_float8(products[r] * block_scale), d * x.scales[(size_t)r * blocks + b], s[r]);
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
