/* One tile of 8 weight rows (LAYOUT_Q2) times n rows of quantized activations, n at most 4 and known when compiled. The
 * halves of a block have scales s and minima t of four bits each: s0 * products0 + s1 * products1 and t0 * half0 + t1 * half1
 * (sums of the activations) are exact. Per block, in order: sum = fma(the first, d * scale, sum), then
 * sum = fma(the second, m * scale, sum). */
INLINE void tile_q2(const int n, __global const uchar *tile, int blocks, struct quantized_row x, float8 *sum)
{
    for (int r = 0; r < n; r++)
        sum[r] = 0.0f;
    for (int b = 0; b < blocks; b++) {
        __global const uchar *w = tile + (size_t)b * 128;
        float8 d = vload_half8(0, (__global const half *)(w + 64)), m = vload_half8(0, (__global const half *)(w + 80));
        int8 s = convert_int8(vload8(0, w + 96)), t = convert_int8(vload8(0, w + 104));
        int8 products[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
        for (int part = 0; part < 2; part++) {
            uint8 words = vload8(part, (__global const uint *)w);
            for (int k = 0; k < 16; k++) { /* element k: bits 2 (k / 4) of byte k % 4 */
                int8 weights = as_int8((words >> (uint8)(8 * (k % 4) + 2 * (k / 4))) & (uint8)3);
                for (int r = 0; r < n; r++) {
                    __global const char *values = (__global const char *)(x.values + ((size_t)r * blocks + b) * 8);
                    products[part][r] += weights * (int)values[16 * part + k];
                }
            }
        }
        for (int r = 0; r < n; r++) {
            size_t at = (size_t)r * blocks + b;
            int halves = x.halves[at], half0 = (halves << 16) >> 16, half1 = halves >> 16;
            float scale = x.scales[at];
            int8 scaled = (s & 15) * products[0][r] + (s >> 4) * products[1][r];
            int8 minima = (t & 15) * half0 + (t >> 4) * half1;
            sum[r] = multiply_add(convert_float8(scaled), d * scale, sum[r]);
            sum[r] = multiply_add(convert_float8(minima), m * scale, sum[r]);
        }
    }
}
