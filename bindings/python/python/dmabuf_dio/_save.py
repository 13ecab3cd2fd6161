# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: reportPrivateUsage=false
"""What saving NumPy arrays and torch tensors has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._index import SafetensorError
from ._layout import NAMES
from ._native import _save_tensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from ._native import CancelToken, Report
    from .types import Progress

    # Address and length of bytes in memory.
    Place = tuple[int, int]
    # Name, type, shape, and where the bytes are; None if they are made when it is their turn.
    Given = tuple[str, str, tuple[int, ...], Place | None]

# The names of the types in a file.
_TYPES = {theirs: name for name, theirs in NAMES.items()} | {"float4_e2m1fn_x2": "F4"}


def given(name: str, dtype: str, shape: tuple[int, ...], place: Place | None) -> Given:
    """A tensor, as it is passed on. Raises SafetensorError for a type that the format does not have."""
    kind = _TYPES.get(dtype)
    if kind is None:
        raise SafetensorError(f'Unknown dtype "{dtype}" of `{name}`. Supported dtypes: {", ".join(_TYPES)}')
    if kind == "F4" and shape:
        # The format counts elements, of which two are in a byte.
        shape = (*shape[:-1], shape[-1] * 2)
    return name, kind, shape, place


def write(
    tensors: list[Given],
    filename: str | PathLike[str],
    metadata: dict[str, str] | None,
    make: Callable[[int], tuple[Any, Place]],
    progress: Progress | None,
    cancel: CancelToken | None,
) -> Report:
    """Saves tensors. `make` copies the one with an index, and says where the copy is: no two copies exist at a time."""
    copies: list[Any] = []

    def fetch(index: int) -> Place:
        copies.clear()
        copy, place = make(index)
        copies.append(copy)
        return place

    return _save_tensors(tensors, filename, metadata, fetch, SafetensorError, progress, cancel)
