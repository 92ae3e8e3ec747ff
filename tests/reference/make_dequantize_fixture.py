#!/usr/bin/env python3
"""Writes tests/data/dequantize/TYPE.bin: random packed rows of each tensor type and the floats that the Python package
gguf (0.19.0) makes of them. Layout, little-endian: u32 type, u32 elements, packed bytes, float32 values.

Usage: make_dequantize_fixture.py OUT_DIR      (pip install gguf==0.19.0)
"""
import struct
import sys
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

ELEMENTS = 768  # three blocks of the K types

# Byte offsets of the half-precision scales in a block. Random bits there would make infinities and NaN.
SCALES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ4_NL: [0], Type.IQ4_XS: [0],
}


def random_row(kind: Type, random: np.random.Generator) -> np.ndarray:
    if kind == Type.F32:
        return random.standard_normal(ELEMENTS).astype(np.float32).view(np.uint8)
    if kind == Type.F16:
        halves = random.integers(0, 1 << 16, ELEMENTS, dtype=np.uint16)
        halves[(halves & 0x7C00) == 0x7C00] &= 0xBFFF
        return halves.view(np.uint8)
    if kind == Type.BF16:
        values = random.integers(0, 1 << 16, ELEMENTS, dtype=np.uint16)
        values[(values & 0x7F80) == 0x7F80] &= 0xBFFF
        return values.view(np.uint8)
    block_elements, block_bytes = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (ELEMENTS // block_elements, block_bytes), dtype=np.uint8)
    for offset in SCALES[kind]:
        scales = (random.standard_normal(len(blocks)) * 10.0 ** random.uniform(-7, 1, len(blocks))).astype(np.float16)
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)


def main() -> None:
    out = Path(sys.argv[1])
    for kind in [Type.F32, Type.F16, Type.BF16, *SCALES]:
        random = np.random.default_rng(int(kind))
        packed = random_row(kind, random)
        values = dequantize(packed.reshape(1, -1), kind).reshape(-1).astype(np.float32)
        assert values.size == ELEMENTS and np.isfinite(values).all()
        header = struct.pack("<II", int(kind), ELEMENTS)
        (out / f"{kind.name}.bin").write_bytes(header + packed.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
