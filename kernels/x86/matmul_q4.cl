/* As portable/matmul_q4.cl, with pmaddubsw: unsigned nibbles times signed activations, pairs summed in int16. Eight such
 * sums fit int16 (15 * 127 * 2 * 8 = 30,480), so a block is widened once. */
typedef char char32 __attribute__((ext_vector_type(32)));
typedef uchar uchar32 __attribute__((ext_vector_type(32)));
typedef short short16_ext __attribute__((ext_vector_type(16)));
typedef int int8_ext __attribute__((ext_vector_type(8)));

INLINE char32 broadcast4(int four)
{
    return __builtin_astype((int8_ext)four, char32);
}

INLINE void tile_q4(const int n, __global const uchar *tile, int blocks, struct quantized_row x, float8 *sum)
{
    const uchar32 mask = (uchar32)15;
    const short16_ext ones = (short16_ext)1;
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
        char32 l0 = __builtin_astype(v0 & mask, char32), l1 = __builtin_astype(v1 & mask, char32);
        char32 l2 = __builtin_astype(v2 & mask, char32), l3 = __builtin_astype(v3 & mask, char32);
        char32 h0 = __builtin_astype(v0 >> (uchar32)4, char32), h1 = __builtin_astype(v1 >> (uchar32)4, char32);
        char32 h2 = __builtin_astype(v2 >> (uchar32)4, char32), h3 = __builtin_astype(v3 >> (uchar32)4, char32);
        float8 d = vload_half8(0, (__global const half *)(w + 128)), m = vload_half8(0, (__global const half *)(w + 144));
#pragma unroll
        for (int r = 0; r < n; r++) {
            size_t at = (size_t)r * blocks + b;
            __global const int *q = x.values + at * 8;
            short16_ext a = __builtin_ia32_pmaddubsw256(l0, broadcast4(q[0])) +
                            __builtin_ia32_pmaddubsw256(l1, broadcast4(q[1])) +
                            __builtin_ia32_pmaddubsw256(l2, broadcast4(q[2])) +
                            __builtin_ia32_pmaddubsw256(l3, broadcast4(q[3])) +
                            __builtin_ia32_pmaddubsw256(h0, broadcast4(q[4])) +
                            __builtin_ia32_pmaddubsw256(h1, broadcast4(q[5])) +
                            __builtin_ia32_pmaddubsw256(h2, broadcast4(q[6])) +
                            __builtin_ia32_pmaddubsw256(h3, broadcast4(q[7]));
            float8 products = convert_float8(__builtin_astype(__builtin_ia32_pmaddwd256(a, ones), int8));
            s[r] = multiply_add(products, d * x.scales[at], s[r]);
            s[r] = multiply_add(m, (float8)x.sums[at], s[r]);
        }
    }
    for (int r = 0; r < n; r++)
        sum[r] = s[r];
}
