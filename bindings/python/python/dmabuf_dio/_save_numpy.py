# SPDX-License-Identifier: MIT OR Apache-2.0
"""Saves NumPy arrays."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy

from ._save import given, write

if TYPE_CHECKING:
    from os import PathLike

    from ._native import CancelToken, Report
    from ._save import Place
    from .types import Progress

    Array = numpy.ndarray[Any, numpy.dtype[Any]]


def save(
    arrays: dict[str, Array],
    filename: str | PathLike[str],
    metadata: dict[str, str] | None,
    progress: Progress | None,
    cancel: CancelToken | None,
) -> Report:
    """Saves arrays. Those that are not as in a file, little-endian and contiguous, are copied when it is their turn."""
    # A list: it keeps the arrays until the end, whatever the program does to the dict.
    items = list(arrays.items())
    tensors = [given(name, array.dtype.name, array.shape, _place(array)) for name, array in items]

    def make(index: int) -> tuple[Array, Place]:
        array = items[index][1]
        copy = numpy.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        return copy, _bytes(copy)

    return write(tensors, filename, metadata, make, progress, cancel)


def _place(array: Array) -> Place | None:
    """Where the bytes of an array are, if they are as in a file."""
    order = array.dtype.byteorder
    is_big = order == ">" or (order == "=" and sys.byteorder == "big")
    return _bytes(array) if array.flags.c_contiguous and not is_big else None


def _bytes(array: Array) -> Place:
    return array.ctypes.data, array.nbytes
