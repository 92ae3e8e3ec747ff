/* One tile of 8 weight rows (LAYOUT_Q5K) times n rows of quantized activations, n at most 4 and known when compiled. Block
 * scales s and minima t are integers, so s * products and t * (sum of the activations) are exact. Per block, in order:
 * sum = fma(s * products, d * scale, sum), then sum = fma(t * total, m * scale, sum). */
INLINE void tile_q5k(const int n, __global const uchar *tile, int blocks, struct quantized_row x, float8 *sum)
{
    for (int r = 0; r < n; r++)
        sum[r] = 0.0f;
    for (int b = 0; b < blocks; b++) {
        __global const uchar *w = tile + (size_t)b * 224;
        float8 d = vload_half8(0, (__global const half *)(w + 160)), m = vload_half8(0, (__global const half *)(w + 176));
        int8 s = convert_int8(vload8(0, w + 192)), t = convert_int8(vload8(0, w + 200));
        uint8 high_bits = vload8(0, (__global const uint *)(w + 128));
        int8 products[4] = {0, 0, 0, 0};
        for (int j = 0; j < 4; j++) {
            uint8 words = vload8(j, (__global const uint *)w), bits = high_bits >> (uint8)j;
            for (int i = 0; i < 4; i++) {
                uint8 byte = words >> (uint8)(8 * i), bit = bits >> (uint8)(8 * i);
                int8 low = as_int8((byte & (uint8)15) | ((bit & (uint8)1) << (uint8)4));
                int8 high = as_int8(((byte >> (uint8)4) & (uint8)15) | (bit & (uint8)16));
                for (int r = 0; r < n; r++) {
                    __global const char *values = (__global const char *)(x.values + ((size_t)r * blocks + b) * 8);
                    products[r] += low * (int)values[4 * j + i] + high * (int)values[16 + 4 * j + i];
                }
            }
        }
        for (int r = 0; r < n; r++) {
            float scale = x.scales[(size_t)r * blocks + b];
            int halves = x.halves[(size_t)r * blocks + b], total = ((halves << 16) >> 16) + (halves >> 16);
            sum[r] = multiply_add(convert_float8(products[r] * s), d * scale, sum[r]);
            sum[r] = multiply_add(convert_float8(t * total), m * scale, sum[r]);
        }
    }
}
