/* Rows of GGUF tensors to floats: the meaning of every tensor type that npud computes with, slow and exact.
 * Source of the formats: ggml's block layouts, checked bit for bit against the Python package gguf.
 * Pure functions; any thread. */
#ifndef NPU_DEQUANTIZE_H
#define NPU_DEQUANTIZE_H

#include <stdbool.h>
#include <stdint.h>

/* type: enum tensor_type of npu/gguf.h. */
bool dequantize_supported(uint32_t type);

/* n elements, a multiple of the type's block (tensor_type_block_elements); row may be unaligned. type must be a
 * supported one. */
void dequantize_row(uint32_t type, const void *row, float *out, int64_t n);

/* Bytes of a row of n elements. */
int64_t dequantize_row_bytes(uint32_t type, int64_t n);

#endif
