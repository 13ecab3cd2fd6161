# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: reportPrivateUsage=false
"""The layout of tensors in bytes: code for NumPy and torch that needs neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._native import _Described

# Their names of the types. NumPy has the last six in the package ml_dtypes.
NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}


class PartialBytes(ValueError):
    """A tensor of a packed type whose last dimension is not whole bytes."""


def byte_shape(tensor: _Described) -> tuple[int, ...]:
    """The shape of a packed or quantised tensor in bytes: its last dimension counts bytes.

    Raises ValueError if that dimension is not whole bytes.
    """
    elements, size = tensor.block
    *outer, last = tensor.shape or (1,)
    if last % elements:
        raise PartialBytes(
            f"{tensor.dtype} requires that the last dimension be divisible by {elements}: got {list(tensor.shape)};"
            " memoryview() has the bytes"
        )
    return (*outer, last // elements * size)


def swaps(tensor: _Described) -> bool:
    """Whether the bytes of each element are in the other order than the processor's. Blocks stay as they are."""
    elements, size = tensor.block
    return tensor.byte_order == "big" and elements == 1 and size > 1


def swapped(memory: Any, size: int) -> bytearray:
    """A copy with the bytes of each element in the opposite order."""
    copy = bytearray(memory)
    for byte in range(size):
        copy[byte::size] = memoryview(memory)[size - 1 - byte :: size]
    return copy
