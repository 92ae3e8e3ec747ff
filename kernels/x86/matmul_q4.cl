/* As portable/matmul_q4.cl, with int8_dot.cl. */
INLINE void tile_q4(const int n, __global const uchar *tile, int blocks, struct quantized_row x, float8 *sum)
{
    const uchar32 mask = (uchar32)15;
    float8 s[4];
    for (int r = 0; r < n; r++)
        s[r] = 0.0f;
    for (int b = 0; b < blocks; b++) {
        __global const uchar *w = tile + (size_t)b * 160;
        __global const uchar32 *v = (__global const uchar32 *)w;
        uchar32 v0 = v[0], v1 = v[1], v2 = v[2], v3 = v[3];
        prefetch_line(w + PREFETCH_BYTES);
        prefetch_line(w + PREFETCH_BYTES + 64);
        prefetch_line(w + PREFETCH_BYTES + 128);
        char32 q[8] = {__builtin_astype(v0 & mask, char32),
                       __builtin_astype(v1 & mask, char32),
                       __builtin_astype(v2 & mask, char32),
                       __builtin_astype(v3 & mask, char32),
                       __builtin_astype(v0 >> (uchar32)4, char32),
                       __builtin_astype(v1 >> (uchar32)4, char32),
                       __builtin_astype(v2 >> (uchar32)4, char32),
                       __builtin_astype(v3 >> (uchar32)4, char32)};
        float8 d = vload_half8(0, (__global const half *)(w + 128)), m = vload_half8(0, (__global const half *)(w + 144));
#pragma unroll
        for (int r = 0; r < n; r++) {
            size_t at = (size_t)r * blocks + b;
            float8 products = convert_float8(dot8_four_bits(q, x.values + at * 8));
            s[r] = multiply_add(products, d * x.scales[at], s[r]);
            s[r] = multiply_add(m, (float8)x.sums[at], s[r]);
        }
    }
    for (int r = 0; r < n; r++)
        sum[r] = s[r];
}
