# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tensors as NumPy arrays, which share the memory that the file was loaded into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from ._safe_open import PartialBytes, safe_open

if TYPE_CHECKING:
    from os import PathLike

    from ._native import Tensor, TensorInfo

__all__ = ["as_array", "load_file"]

_DTYPES: dict[str, Any] = {
    "BOOL": numpy.bool_,
    "U8": numpy.uint8,
    "I8": numpy.int8,
    "U16": numpy.uint16,
    "I16": numpy.int16,
    "F16": numpy.float16,
    "U32": numpy.uint32,
    "I32": numpy.int32,
    "F32": numpy.float32,
    "U64": numpy.uint64,
    "I64": numpy.int64,
    "F64": numpy.float64,
    "C64": numpy.complex64,
}

# Of the package ml_dtypes.
_MORE = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}


def as_array(
    tensor: Tensor | TensorInfo, memory: Tensor | bytearray | memoryview | None = None, shape: tuple[int, ...] | None = None
) -> numpy.ndarray[Any, numpy.dtype[Any]]:
    """A tensor as an array that shares its memory. Packed and quantised types are bytes.

    Raises ValueError for a packed type whose last dimension is not whole bytes.

    Of a big-endian GGUF file they are big-endian, except that a type of ml_dtypes is a copy.

    `memory`: where its bytes are, if not in itself; `shape`: that of a part of it.

    Raises ImportError for a type that needs the package ml_dtypes, if that is missing.
    """
    name = tensor.dtype
    dtype = _DTYPES.get(name)
    shape = tensor.shape if shape is None else shape
    if dtype is None and name in _MORE:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore

        dtype = getattr(ml_dtypes, _MORE[name])  # pyright: ignore
    if dtype is None:
        dtype, shape = numpy.uint8, byte_shape(tensor)
    if tensor.byte_order == "big" and tensor.block[0] == 1:
        dtype = numpy.dtype(dtype)
        if name in _MORE:
            # These types have one byte order.
            memory = swapped(tensor if memory is None else memory, dtype.itemsize)
        else:
            dtype = dtype.newbyteorder(">")
    if type(memory) is bytearray:
        return numpy.ndarray(shape, dtype, memory)
    if 0 in shape:
        return numpy.empty(shape, dtype)
    return numpy.frombuffer(tensor if memory is None else memory, dtype).reshape(shape)  # type: ignore[arg-type, unused-ignore]


def swapped(memory: Any, size: int) -> bytearray:
    """A copy with the bytes of each element in the opposite order."""
    copy = bytearray(memory)
    for byte in range(size):
        copy[byte::size] = memoryview(memory)[size - 1 - byte :: size]
    return copy


def byte_shape(tensor: Tensor | TensorInfo) -> tuple[int, ...]:
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


def load_file(
    filename: str | PathLike[str], *, backend: str = "mmap"
) -> dict[str, numpy.ndarray[Any, numpy.dtype[Any]]]:
    """As safetensors.numpy.load_file(): all tensors of a file, in memory of this process.

    The arrays share the memory that the file was loaded to; it is freed with the last of them.
    """
    with safe_open(filename, framework="np", backend=backend) as file:
        return file.get_tensors()
