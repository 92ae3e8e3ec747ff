/* As portable/matmul_q2.cl, with pmaddubsw: the four pair sums of a half fit int16 (3 * 127 * 2 * 4 = 3,048). */
#define PRODUCT(v, shift, i) \
    __builtin_ia32_pmaddubsw256(__builtin_astype((v >> (uchar32)(shift)) & two_bits, char32), broadcast4(q[i]))
#define HALF(v, i) \
    __builtin_ia32_pmaddwd256(PRODUCT(v, 0, i) + PRODUCT(v, 2, i + 1) + PRODUCT(v, 4, i + 2) + PRODUCT(v, 6, i + 3), ones)
INLINE void tile_q2(const int n, __global const uchar *tile, int blocks, struct quantized_row x, float8 *sum)
{
    const uchar32 two_bits = (uchar32)3;
    const short16_ext ones = (short16_ext)1;
    float8 sums[4];
    for (int r = 0; r < n; r++)
        sums[r] = 0.0f;
    for (int b = 0; b < blocks; b++) {
        __global const uchar *w = tile + (size_t)b * 128;
        __global const uchar32 *v = (__global const uchar32 *)w;
        uchar32 first = v[0], second = v[1];
        prefetch_line(w + PREFETCH_BYTES);
        prefetch_line(w + PREFETCH_BYTES + 64);
        float8 d = vload_half8(0, (__global const half *)(w + 64)), m = vload_half8(0, (__global const half *)(w + 80));
        int8 s = convert_int8(vload8(0, w + 96)), t = convert_int8(vload8(0, w + 104));
#pragma unroll
        for (int r = 0; r < n; r++) {
            size_t at = (size_t)r * blocks + b;
            __global const int *q = x.values + at * 8;
            int8 products0 = __builtin_astype(HALF(first, 0), int8), products1 = __builtin_astype(HALF(second, 4), int8);
            int halves = x.halves[at], half0 = (halves << 16) >> 16, half1 = halves >> 16;
            float scale = x.scales[at];
            int8 scaled = (s & 15) * products0 + (s >> 4) * products1;
            int8 minima = (t & 15) * half0 + (t >> 4) * half1;
            sums[r] = multiply_add(convert_float8(scaled), d * scale, sums[r]);
            sums[r] = multiply_add(convert_float8(minima), m * scale, sums[r]);
        }
    }
    for (int r = 0; r < n; r++)
        sum[r] = sums[r];
}
#undef HALF
#undef PRODUCT
