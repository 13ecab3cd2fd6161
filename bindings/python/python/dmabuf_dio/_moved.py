# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic, reportPrivateUsage=false, reportAttributeAccessIssue=false, reportMissingModuleSource=false
"""Tensors larger than the window, for a device whose driver this library does not know: they pass through the window."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]  # pyright: ignore[reportMissingImports]

from ._as_torch import as_tensor
from ._native import _Reader

if TYPE_CHECKING:
    from ._native import Model, TensorInfo


class Pieces:
    """Tensors of more than `most` bytes, in pieces. `report`: to be added to."""

    takes_all = False

    def __init__(self, model: Model, device: Any, most: int, report: dict[str, int]) -> None:
        self._model, self._device, self._most, self._report = model, device, most, report

    def takes(self, info: TensorInfo) -> bool:
        """Whether a tensor is larger. Elements of packed types share bytes."""
        return info.block[0] == 1 and info.nbytes > self._most

    def tensors(self, names: list[str]) -> dict[str, Any]:
        """Tensors by name."""
        return {name: _moved(self._model, name, self._device, self._most, self._report) for name in names}

    def part(self, name: str, elements: list[tuple[int, int]]) -> None:
        """Nothing: slices are copied as a whole."""


def _moved(model: Model, name: str, device: Any, window: int, report: dict[str, int]) -> Any:
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
