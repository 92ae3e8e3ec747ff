/* 256 multiply-adds of small integers a round, as portable matrix products do them: in 32-bit lanes. */
__kernel void roof_int8(int rounds, int seed, __global uint *out)
{
    int8 weights[8], values[4], sums[4];
#pragma unroll
    for (int i = 0; i < 8; i++)
        weights[i] = (int8)(0, 1, 2, 3, 4, 5, 6, 7) + seed * i;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        values[i] = (int8)(7, 6, 5, 4, 3, 2, 1, 0) + seed + i;
        sums[i] = 0;
    }
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int v = 0; v < 4; v++) {
#pragma unroll
            for (int w = 0; w < 8; w++)
                sums[v] += weights[w] * values[v];
            values[v] = values[v] ^ (sums[v] & 63);
        }
    }
    int8 total = sums[0] + sums[1] + sums[2] + sums[3];
    out[get_global_id(0)] = (uint)(total.s0 + total.s1 + total.s2 + total.s3 + total.s4 + total.s5 + total.s6 + total.s7);
}
