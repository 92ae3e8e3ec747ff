/* What a driver can do at best: reading, and multiply-adds in registers. Rounds depend on each other so that nothing can
 * be left out; what one round of a worker does is fixed in npu/opencl/roof.c. */

/* Reads `vectors` vectors of 32 bytes, in turns of `chunk` of them per worker. */
__kernel void roof_read(__global const uint8 *data, int vectors, int chunk, __global uint *out)
{
    int worker = (int)get_global_id(0), workers = (int)get_global_size(0);
    uint8 a = 0, b = 0, c = 0, d = 0;
    for (long first = (long)worker * chunk; first < vectors; first += (long)workers * chunk) {
        long last = min(first + chunk, (long)vectors), i = first;
        for (; i + 4 <= last; i += 4) {
            a ^= data[i];
            b ^= data[i + 1];
            c ^= data[i + 2];
            d ^= data[i + 3];
        }
        for (; i < last; i++)
            a ^= data[i];
    }
    a ^= b ^ c ^ d;
    out[worker] = a.s0 ^ a.s1 ^ a.s2 ^ a.s3 ^ a.s4 ^ a.s5 ^ a.s6 ^ a.s7;
}

/* 96 fused multiply-adds a round. */
__kernel void roof_float(int rounds, float factor, __global uint *out)
{
    float8 sums[12];
#pragma unroll
    for (int i = 0; i < 12; i++)
        sums[i] = (float8)(0.25f * (float)i);
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int i = 0; i < 12; i++)
            sums[i] = fma(sums[i], (float8)factor, (float8)0.5f);
    }
    float8 total = sums[0];
#pragma unroll
    for (int i = 1; i < 12; i++)
        total += sums[i];
    out[get_global_id(0)] = as_uint(total.s0 + total.s1 + total.s2 + total.s3 + total.s4 + total.s5 + total.s6 + total.s7);
}
