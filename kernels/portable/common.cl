/* Shared by all kernels. A worker is a work-item; every op splits its units over the workers. Floating point is
 * deterministic by construction: no contraction, every accumulation an explicit fma in an order that depends on the
 * row alone. */
#pragma OPENCL FP_CONTRACT OFF

/* Loops over rows are compiled for a row count that is known only once a function is inlined. */
#define INLINE static inline __attribute__((always_inline))

/* Devices without a fused multiply-add would compute fma in software, hundreds of instructions each: there it is a product
 * and a sum, which no compiler may fuse. */
#if HAS_FMA
#define multiply_add(a, b, c) fma(a, b, c)
#else
#define multiply_add(a, b, c) ((a) * (b) + (c))
#endif

#if KV_HALF
typedef half kv_element;
#define kv_load8(offset, pointer) vload_half8(offset, pointer)
#define kv_store(value, pointer) vstore_half_rte(value, 0, pointer)
#else
typedef float kv_element;
#define kv_load8(offset, pointer) vload8(offset, pointer)
#define kv_store(value, pointer) (*(pointer) = (value))
#endif

/* What every op function gets. */
struct context {
    __global const int *input;
    __global float *arena;
    __global const uchar *weights[WEIGHT_SEGMENTS];
    __global const float *vectors;
    __global kv_element *kv[KV_SEGMENTS];
    int blocks_per_segment;
    int block_elements;
    int worker, workers;
};

INLINE int row_count(const struct context *c, __global const struct op_entry *e)
{
    return c->input[INPUT_N_ROWS + e->row_set];
}

/* The row's words; returning rows are found through their list. */
INLINE __global const int *row_words(const struct context *c, __global const struct op_entry *e, int row)
{
    int index = e->row_set ? c->input[INPUT_RETURNING + row] : row;
    return c->input + INPUT_ROWS + index * INPUT_ROW_WORDS;
}

INLINE __global kv_element *kv_block(const struct context *c, int block)
{
    int segment = block / c->blocks_per_segment;
    __global kv_element *base = c->kv[0];
#if KV_SEGMENTS > 1
    if (segment == 1)
        base = c->kv[1];
#endif
#if KV_SEGMENTS > 2
    if (segment == 2)
        base = c->kv[2];
    if (segment == 3)
        base = c->kv[3];
#endif
    return base + (size_t)(block - segment * c->blocks_per_segment) * c->block_elements;
}

INLINE __global const uchar *weight_tiles(const struct context *c, __global const struct op_entry *e)
{
    __global const uchar *base = c->weights[0];
#if WEIGHT_SEGMENTS > 1
    if (e->weight_segment == 1)
        base = c->weights[1];
#endif
#if WEIGHT_SEGMENTS > 2
    if (e->weight_segment == 2)
        base = c->weights[2];
    if (e->weight_segment == 3)
        base = c->weights[3];
#endif
    return base + (size_t)e->weight_offset * 64;
}

/* This worker's contiguous share of n units. */
INLINE int share_begin(const struct context *c, int n)
{
    return (int)((long)n * c->worker / c->workers);
}

INLINE int share_end(const struct context *c, int n)
{
    return (int)((long)n * (c->worker + 1) / c->workers);
}

INLINE float sum8(float8 v)
{
    float4 a = v.lo + v.hi;
    float2 b = a.lo + a.hi;
    return b.x + b.y;
}

INLINE float max8(float8 v)
{
    float4 a = fmax(v.lo, v.hi);
    float2 b = fmax(a.lo, a.hi);
    return fmax(b.x, b.y);
}

/* exp to about 1 ulp, the same bits wherever it is inlined; 0 below -87, so that masked scores weigh nothing. */
INLINE float8 exp8(float8 x)
{
    float8 t = fmin(fmax(x, (float8)-87.0f), (float8)88.0f);
    float8 n = rint(t * 1.44269504088896f);
    float8 r = multiply_add(n, (float8)-0.693359375f, t);
    r = multiply_add(n, (float8)2.12194440e-4f, r);
    float8 p = multiply_add(r, (float8)1.9875691500e-4f, (float8)1.3981999507e-3f);
    p = multiply_add(p, r, (float8)8.3334519073e-3f);
    p = multiply_add(p, r, (float8)4.1665795894e-2f);
    p = multiply_add(p, r, (float8)1.6666665459e-1f);
    p = multiply_add(p, r, (float8)5.0000001201e-1f);
    p = multiply_add(p, r * r, r) + 1.0f;
    p = as_float8((convert_int8(n) + 127) << 23) * p;
    return select(p, (float8)0.0f, x < -87.0f);
}

INLINE float exp1(float x)
{
    return exp8((float8)x).s0;
}

/* Where the parts of a row's quantized copy stand. */
struct quantized_row {
    __global int *values;
    __global float *scales, *sums;
    __global int *halves;
};

INLINE struct quantized_row quantized_at(const struct context *c, __global const struct op_entry *e, int row)
{
    int width = e->quantized_width, blocks = width / 32;
    __global float *base = c->arena + e->quantized;
    struct quantized_row q;
    q.values = (__global int *)base + (size_t)row * (width / 4);
    base += (size_t)e->capacity * (width / 4);
    q.scales = base + (size_t)row * blocks;
    base += (size_t)e->capacity * blocks;
    q.sums = base + (size_t)row * blocks;
    base += (size_t)e->capacity * blocks;
    q.halves = (__global int *)base + (size_t)row * blocks;
    return q;
}

/* Quantizes 32 floats as block `block` of a row: d = max|x| / 127, values rounded to nearest even. */
INLINE void quantize_block(float8 a, float8 b, float8 c, float8 d, struct quantized_row q, int block)
{
    float m = max8(fmax(fmax(fabs(a), fabs(b)), fmax(fabs(c), fabs(d))));
    float inverse = m > 0.0f ? 127.0f / m : 0.0f;
    float scale = m / 127.0f;
    int8 ia = convert_int8(rint(a * inverse)), ib = convert_int8(rint(b * inverse));
    int8 ic = convert_int8(rint(c * inverse)), id = convert_int8(rint(d * inverse));
    __global char *values = (__global char *)(q.values + block * 8);
    vstore8(convert_char8(ia), 0, values);
    vstore8(convert_char8(ib), 1, values);
    vstore8(convert_char8(ic), 2, values);
    vstore8(convert_char8(id), 3, values);
    int8 low8 = ia + ib, high8 = ic + id;
    int4 low4 = low8.lo + low8.hi, high4 = high8.lo + high8.hi;
    int low = low4.x + low4.y + low4.z + low4.w, high = high4.x + high4.y + high4.z + high4.w;
    q.scales[block] = scale;
    q.sums[block] = scale * (float)(low + high);
    q.halves[block] = (low & 0xffff) | (high << 16);
}

/* Quantizes n floats that stand in memory. */
INLINE void quantize_floats(__global const float *x, int n, struct quantized_row q)
{
    for (int b = 0; b < n / 32; b++)
        quantize_block(vload8(b * 4, x), vload8(b * 4 + 1, x), vload8(b * 4 + 2, x), vload8(b * 4 + 3, x), q, b);
}
