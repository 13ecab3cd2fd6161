# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tensors as NumPy arrays, which share the memory that the file was loaded into; and arrays saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._as_numpy import as_array
from ._safe_open import safe_open
from ._save_numpy import save

if TYPE_CHECKING:
    from os import PathLike

    import numpy

    from ._native import CancelToken, Report
    from .types import Progress

__all__ = ["as_array", "load_file", "save_file"]


def load_file(
    filename: str | PathLike[str], *, backend: str = "mmap"
) -> dict[str, numpy.ndarray[Any, numpy.dtype[Any]]]:
    """As safetensors.numpy.load_file(): all tensors of a file, in memory of this process.

    The arrays share the memory that the file was loaded to; it is freed with the last of them.
    """
    with safe_open(filename, framework="np", backend=backend) as file:
        return file.get_tensors()


def save_file(
    tensor_dict: dict[str, numpy.ndarray[Any, numpy.dtype[Any]]],
    filename: str | PathLike[str],
    metadata: dict[str, str] | None = None,
    *,
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
) -> Report:
    """As safetensors.numpy.save_file(): saves arrays.

    The file is durable when this returns, and replaces an old one as a whole or not at all. The bytes are written by
    direct I/O; arrays that are big-endian or not contiguous are copied one at a time. Do not change the arrays
    meanwhile.
    """
    return save(tensor_dict, filename, metadata, progress, cancel)
