/* Names and block sizes of ggml's tensor types (ggml.h: enum ggml_type; gguf-py: GGML_QUANT_SIZES). */
#include "npu/gguf.h"

struct type_shape {
    const char *name;
    int elements, bytes; /* of one block */
};

static const struct type_shape shapes[] = {
    [TENSOR_F32] = {"F32", 1, 4},
    [TENSOR_F16] = {"F16", 1, 2},
    [TENSOR_Q4_0] = {"Q4_0", 32, 18},
    [TENSOR_Q4_1] = {"Q4_1", 32, 20},
    [TENSOR_Q5_0] = {"Q5_0", 32, 22},
    [TENSOR_Q5_1] = {"Q5_1", 32, 24},
    [TENSOR_Q8_0] = {"Q8_0", 32, 34},
    [9] = {"Q8_1", 32, 36},
    [TENSOR_Q2_K] = {"Q2_K", 256, 84},
    [TENSOR_Q3_K] = {"Q3_K", 256, 110},
    [TENSOR_Q4_K] = {"Q4_K", 256, 144},
    [TENSOR_Q5_K] = {"Q5_K", 256, 176},
    [TENSOR_Q6_K] = {"Q6_K", 256, 210},
    [15] = {"Q8_K", 256, 292},
    [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98},
    [19] = {"IQ1_S", 256, 50},
    [TENSOR_IQ4_NL] = {"IQ4_NL", 32, 18},
    [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},
    [TENSOR_IQ4_XS] = {"IQ4_XS", 256, 136},
    [24] = {"I8", 1, 1},
    [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},
    [27] = {"I64", 1, 8},
    [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},
    [TENSOR_BF16] = {"BF16", 1, 2},
    [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},
    [39] = {"MXFP4", 32, 17},
    [40] = {"NVFP4", 64, 36},
    [41] = {"Q1_0", 128, 18},
};

static const struct type_shape *find_shape(uint32_t type)
{
    if (type >= sizeof shapes / sizeof shapes[0] || shapes[type].name == NULL)
        return NULL;
    return &shapes[type];
}

const char *tensor_type_name(uint32_t type)
{
    const struct type_shape *shape = find_shape(type);
    return shape != NULL ? shape->name : NULL;
}

int tensor_type_block_elements(uint32_t type)
{
    const struct type_shape *shape = find_shape(type);
    return shape != NULL ? shape->elements : 0;
}

int tensor_type_block_bytes(uint32_t type)
{
    const struct type_shape *shape = find_shape(type);
    return shape != NULL ? shape->bytes : 0;
}
