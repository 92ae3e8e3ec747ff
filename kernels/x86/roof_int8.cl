/* 256 multiply-adds of int8 a round, as the kernels do them for four-bit weights. */
__kernel void roof_int8(int rounds, int seed, __global uint *out)
{
    char32 weights[8];
    int8_ext value = (int8_ext)(seed & 0x7f7f7f7f), sum = (int8_ext)0;
#if VNNI_ENCODING
    int8_ext sums[8];
#else
    const short16_ext ones = (short16_ext)1;
#endif
#pragma unroll
    for (int i = 0; i < 8; i++) {
        weights[i] = __builtin_astype((int8_ext)((seed * (i + 1)) & 0x0f0f0f0f), char32);
#if VNNI_ENCODING
        sums[i] = (int8_ext)0;
#endif
    }
    for (int round = 0; round < rounds; round++) {
#if VNNI_ENCODING
#pragma unroll
        for (int i = 0; i < 8; i++)
            sums[i] = dot_add(sums[i], weights[i], value);
#else
        short16_ext pairs = (short16_ext)0;
#pragma unroll
        for (int i = 0; i < 8; i++)
            pairs += __builtin_ia32_pmaddubsw256(weights[i], __builtin_astype(value, char32));
        sum += __builtin_ia32_pmaddwd256(pairs, ones);
#endif
        value += (int8_ext)0x01010101;
    }
#if VNNI_ENCODING
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum += sums[i];
#endif
    int8 total = __builtin_astype(sum, int8);
    out[get_global_id(0)] = (uint)(total.s0 + total.s1 + total.s2 + total.s3 + total.s4 + total.s5 + total.s6 + total.s7);
}
