/* Sums of products of unsigned weights and signed activations, int8 in int32 lanes: lane i of a sum is over bytes 4i..4i+3
 * of each vector. All exact, so both ways give the same bits. With VNNI four products are summed in one instruction; else
 * pmaddubsw sums pairs in int16, and as many of these are added as fit before they are widened. */
typedef char char32 __attribute__((ext_vector_type(32)));
typedef uchar uchar32 __attribute__((ext_vector_type(32)));
typedef short short16_ext __attribute__((ext_vector_type(16)));
typedef int int8_ext __attribute__((ext_vector_type(8)));

INLINE char32 broadcast4(int four)
{
    return __builtin_astype((int8_ext)four, char32);
}

/* As assembly, because drivers' compilers often know less of the processor than it can do. */
#if VNNI_ENCODING
#if VNNI_ENCODING == 512
#define VPDPBUSD "vpdpbusd %2, %1, %0"
#define ANY_VECTOR "v"
#else
#define VPDPBUSD "{vex} vpdpbusd %2, %1, %0"
#define ANY_VECTOR "x"
#endif

INLINE int8_ext dot_add(int8_ext sum, char32 weights, int8_ext values)
{
    __asm__(VPDPBUSD : "+" ANY_VECTOR(sum) : ANY_VECTOR(weights), ANY_VECTOR(values));
    return sum;
}

INLINE int8_ext dot4(const char32 *q, __global const int *a)
{
    int8_ext sum = (int8_ext)0;
#pragma unroll
    for (int j = 0; j < 4; j++)
        sum = dot_add(sum, q[j], (int8_ext)a[j]);
    return sum;
}

/* Two chains, so that one need not wait for the other. */
#define dot8(q, a) __builtin_astype(dot4(q, a) + dot4((q) + 4, (a) + 4), int8)
#define dot8_four_bits(q, a) dot8(q, a)
#define dot8_five_bits(q, a) dot8(q, a)
#define dot4_six_bits(q, a) __builtin_astype(dot4(q, a), int8)
#else
#define PAIRS(j) __builtin_ia32_pmaddubsw256(q[j], broadcast4(a[j]))
#define WIDENED(pairs) __builtin_ia32_pmaddwd256(pairs, (short16_ext)1)

/* Eight pair sums of four-bit values fit int16: 15 * 127 * 2 * 8 = 30,480. */
INLINE int8 dot8_four_bits(const char32 *q, __global const int *a)
{
    short16_ext pairs = PAIRS(0) + PAIRS(1) + PAIRS(2) + PAIRS(3) + PAIRS(4) + PAIRS(5) + PAIRS(6) + PAIRS(7);
    return __builtin_astype(WIDENED(pairs), int8);
}

/* Four of five-bit values do: 31 * 127 * 2 * 4 = 31,496. */
INLINE int8 dot8_five_bits(const char32 *q, __global const int *a)
{
    short16_ext low = PAIRS(0) + PAIRS(1) + PAIRS(2) + PAIRS(3), high = PAIRS(4) + PAIRS(5) + PAIRS(6) + PAIRS(7);
    return __builtin_astype(WIDENED(low) + WIDENED(high), int8);
}

/* Two of six-bit values do: 63 * 127 * 2 * 2 = 32,004. */
INLINE int8 dot4_six_bits(const char32 *q, __global const int *a)
{
    return __builtin_astype(WIDENED(PAIRS(0) + PAIRS(1)) + WIDENED(PAIRS(2) + PAIRS(3)), int8);
}
#undef PAIRS
#undef WIDENED
#endif
