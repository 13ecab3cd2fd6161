# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: reportPrivateUsage=false
"""The tensors of an open model, read when they are requested, each into memory of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from ._native import _Reader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._native import Buffer, Model, TensorInfo, _Mapped, _Wanted

    Memory = Union[Buffer, bytearray, _Mapped]
    Elements = list[tuple[int, int]]


class Lazy:
    """Tensors by name. `maps`: what the page cache has is mapped, copied when it is written, in place of copied.

    `most`: tensors of more bytes, or of more than the window, are not read ahead.
    """

    def __init__(self, model: Model, maps: bool, window: int | None = None, most: int | None = None) -> None:
        self.model = model
        self.reader = _Reader(model, window, most=most)
        self.most = min(most or 0, max(self.reader.report()["window"], 4 << 20))
        self._maps = maps
        self._position = {name: number for number, name in enumerate(model.keys())}

    def info(self, name: str) -> TensorInfo:
        """The header's description of a tensor. Raises KeyError."""
        return self.model[name]

    def want(self, names: Iterable[str]) -> _Wanted:
        """Announces that tensors will be requested: they are read ahead as long as the result exists. Raises KeyError."""
        return self.reader.want([self._position[name] for name in names])

    def tensor(self, name: str) -> tuple[TensorInfo, Memory]:
        """A tensor and its memory. Raises KeyError."""
        return self.reader.get(self._position[name], self._maps)

    def loaded(self, name: str) -> tuple[TensorInfo, Memory]:
        """The same, loaded even if the page cache has it."""
        return self.reader.take(self._position[name])

    def sliced(self, name: str, info: TensorInfo, elements: Elements) -> tuple[Memory, Elements]:
        """Memory that has elements of a tensor, the first and last of each dimension; and which elements it has."""
        whole = [(0, size) for size in info.shape]
        # The rows of packed types need not be whole bytes.
        if info.block[0] > 1 or not info.nbytes or elements == whole:
            return self.tensor(name)[1], whole
        memory, alone = self.reader.part(self._position[name], elements, self._maps)
        return memory, elements if alone else [elements[0], *whole[1:]]
