/* As portable/matmul_q6.cl, with int8_dot.cl: unsigned values (offset 32 taken off through the activations' sums). */
INLINE void tile_q6(const int n, __global const uchar *tile, int blocks, struct quantized_row x, float8 *sum)
{
    const uchar32 nibble = (uchar32)15, two_bits = (uchar32)0x30;
    float8 s[4];
    for (int r = 0; r < n; r++)
        s[r] = 0.0f;
    for (int b = 0; b < blocks; b++) {
        __global const uchar *w = tile + (size_t)b * 224;
        __global const uchar32 *v = (__global const uchar32 *)w;
        int8 scale0 = convert_int8(vload8(0, (__global const char *)(w + 192)));
        int8 scale1 = convert_int8(vload8(1, (__global const char *)(w + 192)));
        float8 d = vload_half8(0, (__global const half *)(w + 208));
        char32 q0[4], q1[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uchar32 low = v[j], high = v[4 + j / 2];
            if (j % 2)
                high = high >> (uchar32)4;
            q0[j] = __builtin_astype((low & nibble) | ((high << (uchar32)4) & two_bits), char32);
            q1[j] = __builtin_astype((low >> (uchar32)4) | ((high << (uchar32)2) & two_bits), char32);
        }
#pragma unroll
        for (int r = 0; r < n; r++) {
            size_t at = (size_t)r * blocks + b;
            __global const int *q = x.values + at * 8;
            int8 first = dot4_six_bits(q0, q), second = dot4_six_bits(q1, q + 4);
            int halves = x.halves[at];
            int half0 = (halves << 16) >> 16, half1 = halves >> 16;
            int8 t = scale0 * (first - 32 * half0) + scale1 * (second - 32 * half1);
            s[r] = multiply_add(convert_float8(t), d * x.scales[at], s[r]);
        }
    }
    for (int r = 0; r < n; r++)
        sum[r] = s[r];
}
