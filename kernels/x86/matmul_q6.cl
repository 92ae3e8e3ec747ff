/* As portable/matmul_q6.cl, with pmaddubsw: 6-bit unsigned values (offset 32 taken off through the activations' sums);
 * two pair sums fit int16 (63 * 127 * 2 * 2 = 32,004). */
INLINE void tile_q6(const int n, __global const uchar *tile, int blocks, struct quantized_row x, float8 *sum)
{
    const uchar32 nibble = (uchar32)15, two_bits = (uchar32)0x30;
    const short16_ext ones = (short16_ext)1;
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
#define PAIR(w0, i0, w1, i1)                                                                                  \
    __builtin_ia32_pmaddwd256(__builtin_ia32_pmaddubsw256(w0, broadcast4(q[i0])) +                            \
                                  __builtin_ia32_pmaddubsw256(w1, broadcast4(q[i1])),                         \
                              ones)
            int8 first = __builtin_astype(PAIR(q0[0], 0, q0[1], 1) + PAIR(q0[2], 2, q0[3], 3), int8);
            int8 second = __builtin_astype(PAIR(q1[0], 4, q1[1], 5) + PAIR(q1[2], 6, q1[3], 7), int8);
#undef PAIR
            int halves = x.halves[at];
            int half0 = (halves << 16) >> 16, half1 = halves >> 16;
            int8 t = scale0 * (first - 32 * half0) + scale1 * (second - 32 * half1);
            s[r] = multiply_add(convert_float8(t), d * x.scales[at], s[r]);
        }
    }
    for (int r = 0; r < n; r++)
        sum[r] = s[r];
}
