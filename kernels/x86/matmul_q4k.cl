/* As portable/matmul_q4k.cl, with int8_dot.cl. */
INLINE void tile_q4k(const int n, __global const uchar *tile, int blocks, struct quantized_row x, float8 *sum)
{
    const uchar32 nibble = (uchar32)15;
    float8 sums[4];
    for (int r = 0; r < n; r++)
        sums[r] = 0.0f;
    for (int b = 0; b < blocks; b++) {
        __global const uchar *w = tile + (size_t)b * 192;
        __global const uchar32 *v = (__global const uchar32 *)w;
        prefetch_line(w + PREFETCH_BYTES);
        prefetch_line(w + PREFETCH_BYTES + 64);
        prefetch_line(w + PREFETCH_BYTES + 128);
        float8 d = vload_half8(0, (__global const half *)(w + 128)), m = vload_half8(0, (__global const half *)(w + 144));
        int8 s = convert_int8(vload8(0, w + 160)), t = convert_int8(vload8(0, w + 168));
        char32 q[8];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            q[j] = __builtin_astype(v[j] & nibble, char32);
            q[4 + j] = __builtin_astype(v[j] >> (uchar32)4, char32);
        }
#pragma unroll
        for (int r = 0; r < n; r++) {
            size_t at = (size_t)r * blocks + b;
            int8 products = dot8_four_bits(q, x.values + at * 8);
            float scale = x.scales[at];
            int halves = x.halves[at], total_activations = ((halves << 16) >> 16) + (halves >> 16);
            sums[r] = multiply_add(convert_float8(products * s), d * scale, sums[r]);
            sums[r] = multiply_add(convert_float8(t * total_activations), m * scale, sums[r]);
        }
    }
    for (int r = 0; r < n; r++)
        sum[r] = sums[r];
}
