# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tensors as NumPy arrays, which share the memory that the file was loaded into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._as_numpy import as_array
from ._safe_open import safe_open

if TYPE_CHECKING:
    from os import PathLike

    import numpy

__all__ = ["as_array", "load_file"]


def load_file(
    filename: str | PathLike[str], *, backend: str = "mmap"
) -> dict[str, numpy.ndarray[Any, numpy.dtype[Any]]]:
    """As safetensors.numpy.load_file(): all tensors of a file, in memory of this process.

    The arrays share the memory that the file was loaded to; it is freed with the last of them.
    """
    with safe_open(filename, framework="np", backend=backend) as file:
        return file.get_tensors()
