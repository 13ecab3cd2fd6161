# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tensors as NumPy arrays, which share their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from ._layout import NAMES, byte_shape, swapped, swaps

if TYPE_CHECKING:
    from ._lazy import Memory
    from ._native import Tensor, TensorInfo

# NumPy's own types. Types of other packages are added once they are used.
_DTYPES: dict[str, numpy.dtype[Any]] = {name: numpy.dtype(theirs) for name, theirs in list(NAMES.items())[:-6]}


def as_array(
    tensor: Tensor | TensorInfo, memory: Memory | None = None, shape: tuple[int, ...] | None = None
) -> numpy.ndarray[Any, numpy.dtype[Any]]:
    """A tensor as an array that shares its memory. Packed and quantised types are bytes.

    Raises ValueError for a packed type whose last dimension is not whole bytes.

    Of a big-endian GGUF file they are big-endian, except that a type of ml_dtypes is a copy.

    `memory`: where its bytes are, if not in itself; `shape`: that of a part of it.

    Raises ImportError for a type that needs the package ml_dtypes, if that is missing.
    """
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        dtype = _more(tensor.dtype)
    shape = tensor.shape if shape is None else shape
    source: Any = tensor if memory is None else memory
    if dtype is None:
        dtype, shape = numpy.dtype(numpy.uint8), byte_shape(tensor)
    elif tensor.byte_order == "big" and swaps(tensor):
        if dtype.isbuiltin == 1:
            dtype = dtype.newbyteorder(">")
        else:
            # The types of ml_dtypes have one byte order.
            source = swapped(source, dtype.itemsize)
    if type(source) is bytearray:
        return numpy.ndarray(shape, dtype, source)
    if 0 in shape:
        return numpy.empty(shape, dtype)
    return numpy.frombuffer(source, dtype).reshape(shape)


def _more(name: str) -> numpy.dtype[Any] | None:
    """A type of the package ml_dtypes."""
    if name not in NAMES:
        return None
    import ml_dtypes  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore

    dtype: numpy.dtype[Any] = numpy.dtype(getattr(ml_dtypes, NAMES[name]))  # pyright: ignore
    _DTYPES[name] = dtype
    return dtype
