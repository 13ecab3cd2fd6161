# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic, reportPrivateUsage=false, reportAttributeAccessIssue=false, reportMissingModuleSource=false
"""Tensors larger than the window, for another device: they pass through the window."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]

from ._as_torch import as_tensor
from ._native import _Reader

if TYPE_CHECKING:
    from ._native import Model


def moved(model: Model, name: str, device: Any, window: int, report: dict[str, int]) -> Any:
    """A tensor on a device, read in pieces: the next ones are read while one is copied. `report`: to be added to."""
    shape = model[name].shape
    pieces = _pieces(shape, model[name].nbytes, window // 4)
    number = model.keys().index(name)
    reader = _Reader(model, window, cuts=[(number, piece) for piece in pieces])
    wanted = reader.want(list(range(len(pieces))))
    whole: Any = None
    for place, elements in enumerate(pieces):
        piece = as_tensor(reader.tensor(place))
        if whole is None:
            whole = torch.empty(shape, dtype=piece.dtype, device=device)
        whole[tuple(slice(first, last) for first, last in elements)].copy_(piece)
        # Its memory is free before the next is waited for.
        del piece
    del wanted
    for key, value in reader.report().items():
        report[key] += value
    return whole


def _pieces(shape: tuple[int, ...], nbytes: int, most: int) -> list[list[tuple[int, int]]]:
    """The elements of contiguous pieces of a tensor in each dimension: from the first to the last."""
    dim = 0
    inner = nbytes // shape[0]
    while inner > most and dim + 1 < len(shape):
        dim += 1
        inner //= shape[dim]
    step = max(1, most // inner)
    return [
        [*((at, at + 1) for at in outer), (at, min(at + step, shape[dim])), *((0, size) for size in shape[dim + 1 :])]
        for outer in product(*map(range, shape[:dim]))
        for at in range(0, shape[dim], step)
    ]
