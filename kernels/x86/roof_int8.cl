/* 256 multiply-adds of int8 a round, as matmul_q4.cl does them: eight pair products in int16, widened once. */
__kernel void roof_int8(int rounds, int seed, __global uint *out)
{
    typedef char char32 __attribute__((ext_vector_type(32)));
    typedef short short16_ext __attribute__((ext_vector_type(16)));
    typedef int int8_ext __attribute__((ext_vector_type(8)));
    char32 weights[8];
    int8_ext value = (int8_ext)(seed & 0x7f7f7f7f), sum = (int8_ext)0;
    const short16_ext ones = (short16_ext)1;
#pragma unroll
    for (int i = 0; i < 8; i++)
        weights[i] = __builtin_astype((int8_ext)((seed * (i + 1)) & 0x0f0f0f0f), char32);
    for (int round = 0; round < rounds; round++) {
        short16_ext pairs = (short16_ext)0;
#pragma unroll
        for (int i = 0; i < 8; i++)
            pairs += __builtin_ia32_pmaddubsw256(weights[i], __builtin_astype(value, char32));
        sum += __builtin_ia32_pmaddwd256(pairs, ones);
        value += (int8_ext)0x01010101;
    }
    int8 total = __builtin_astype(sum, int8);
    out[get_global_id(0)] = (uint)(total.s0 + total.s1 + total.s2 + total.s3 + total.s4 + total.s5 + total.s6 + total.s7);
}
