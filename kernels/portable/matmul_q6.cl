/* One tile of 8 weight rows (LAYOUT_Q6) times n rows of quantized activations, n at most 4 and known when compiled.
 * A block has two sub-blocks of 16 with int8 scales; t = s0 * (products0 - 32 * halves0) + s1 * (products1 - 32 *
 * halves1) is an exact integer. Per block, in order: sum = fma(t, d * scale, sum). */
INLINE void tile_q6(const int n, __global const uchar *tile, int blocks, struct quantized_row x, float8 *sum)
{
    for (int r = 0; r < n; r++)
        sum[r] = 0.0f;
    for (int b = 0; b < blocks; b++) {
        __global const uchar *w = tile + (size_t)b * 224;
        int8 scale0 = convert_int8(vload8(0, (__global const char *)(w + 192)));
        int8 scale1 = convert_int8(vload8(1, (__global const char *)(w + 192)));
        float8 d = vload_half8(0, (__global const half *)(w + 208));
        int8 first[4] = {0, 0, 0, 0}, second[4] = {0, 0, 0, 0};
        for (int j = 0; j < 4; j++) {
            uint8 low = vload8(j, (__global const uint *)w);
            uint8 high = vload8(j / 2, (__global const uint *)(w + 128)) >> (uint8)(4 * (j % 2));
            for (int i = 0; i < 4; i++) {
                uint8 a = low >> (uint8)(8 * i), h = high >> (uint8)(8 * i);
                int8 q0 = as_int8((a & (uint8)15) | ((h & (uint8)3) << (uint8)4));
                int8 q1 = as_int8(((a >> (uint8)4) & (uint8)15) | (((h >> (uint8)2) & (uint8)3) << (uint8)4));
                for (int r = 0; r < n; r++) {
                    __global const char *values = (__global const char *)(x.values + ((size_t)r * blocks + b) * 8);
                    first[r] += q0 * (int)values[4 * j + i];
                    second[r] += q1 * (int)values[16 + 4 * j + i];
                }
            }
        }
        for (int r = 0; r < n; r++) {
            int halves = x.halves[(size_t)r * blocks + b];
            int half0 = (halves << 16) >> 16, half1 = halves >> 16;
            int8 t = scale0 * (first[r] - 32 * half0) + scale1 * (second[r] - 32 * half1);
            sum[r] = multiply_add(convert_float8(t), d * x.scales[(size_t)r * blocks + b], sum[r]);
        }
    }
}
