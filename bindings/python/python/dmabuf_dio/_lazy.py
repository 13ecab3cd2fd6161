# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: reportPrivateUsage=false
"""The tensors of an open file, loaded when they are requested."""

from __future__ import annotations

import os
from mmap import MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap
from threading import Lock
from typing import TYPE_CHECKING, Union
from weakref import WeakSet, ref

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ._native import Model, Tensor, TensorInfo, Tensors

    # A tensor's memory: a part of a larger load, bytes of its own, or a part of the mapped file.
    Memory = Union[Tensor, bytearray, memoryview]

# Bytes for which it pays to set up a load. Fewer come from the page cache, read by one system call or mapped.
WORTH_A_LOAD = 4 << 20
# Bytes of a tensor that is worth a load by itself, requested out of the file's order: nothing can be loaded ahead of it.
WORTH_A_LOAD_ALONE = 16 << 20
# Fewer bytes than this are never loaded ahead: the kernel reads ahead of sequential reads. Of mapped tensors, only
# those that are worth a load by themselves are loaded ahead: the kernel reads ahead of faults, too, and has no memory
# to zero.
ALONE = 64 << 10
# So many slices are mapped one by one.
FEW = 16


class Lazy:
    """Tensors are read when they are requested.

    - A small tensor is read alone. One that is worth a load is loaded alone, unless the page cache has it.
    - Once a program has requested tensors in the order of the file that together were worth a load, those that follow
      are loaded ahead, as many bytes as it has requested in a row: it needs few loads, and reads at most twice what it
      uses.

    `shares`: as safetensors does for torch, a tensor has one memory as long as this object exists, and what would be read
    through the page cache is mapped, copied when it is written. A tensor that is
    sliced is then loaded together with all others of which slices exist: transformers creates one of each tensor before
    it uses the first. Otherwise nothing that was handed out is handed out again.
    """

    def __init__(self, model: Model, shares: bool) -> None:
        self.model = model
        self._shares = shares
        self._names = model.keys()
        self._position = {name: number for number, name in enumerate(self._names)}
        self._loaded: dict[str, Memory] = {}
        # The files, for tensors that are shared.
        self._maps: dict[int, memoryview] = {}
        # Sequential requests: the offset of the next tensor, and the bytes requested so far.
        self._next = 0
        self._row = 0
        # A slice may be collected in any thread, even one holding the lock, so a WeakSet could change while it is read.
        self._slices: set[ref[HasName]] = set()
        self._lock = Lock()
        _files.add(self)

    def info(self, name: str) -> TensorInfo:
        """The header's description of a tensor. Raises KeyError."""
        return self.model[name]

    def announce(self, piece: HasName) -> None:
        """A slice of a tensor may be used as long as `piece` exists."""
        if self._shares:
            with self._lock:
                self._slices.add(ref(piece, self._slices.discard))

    def tensor(self, name: str) -> tuple[TensorInfo, Memory]:
        """A tensor and its memory. Raises KeyError."""
        position = self._position[name]
        with self._lock:
            return self._hand_out(name, position)

    def sliced(self, name: str, info: TensorInfo, rows: tuple[int, int]) -> tuple[Memory, bool]:
        """The memory that has these rows of a tensor, and whether it has no others."""
        with self._lock:
            if self._shares:
                if name not in self._loaded:
                    pieces = [piece() for piece in self._slices.copy()]
                    self._load({name, *(piece.name for piece in pieces if piece is not None)})
                return self._loaded[name], False
            first, last = rows
            shape = info.shape
            # The rows of packed types need not be whole bytes.
            if info.block[0] == 1 and info.nbytes and shape and last - first < shape[0]:
                size = info.nbytes // shape[0]
                return self.model._part(name, first * size, last * size), True
            return self._hand_out(name, self._position[name])[1], False

    def all(
        self,
        convert: Callable[[TensorInfo | Tensor, Memory], Any],
        reads: Callable[[Tensor], bool],
    ) -> dict[str, Any]:
        """The results of `convert` for each tensor, in the order of their bytes.

        Where nothing is loaded yet, most is made while the disk reads: `reads` says of which tensors `convert`
        needs the bytes.
        """

        def begin(tensors: Tensors) -> tuple[dict[str, Tensor], dict[str, Any]]:
            items = dict(tensors.items())
            return items, {
                name: None if reads(tensor) else convert(tensor, tensor) for name, tensor in items.items()
            }

        with self._lock:
            if self._shares and self._loaded:
                self._load(self._names)
                return {name: convert(self.model[name], self._loaded[name]) for name in self._names}
            begun = self.model._load_with(begin)
            if begun is None:
                loaded = dict(self.model.load(only=None, kind="private", writable=True).items())
                begun = loaded, dict.fromkeys(loaded)
            loaded, made = begun
            if self._shares:
                self._loaded.update(loaded)
            for name, value in made.items():
                if value is None:
                    made[name] = convert(loaded[name], loaded[name])
            return made

    def _hand_out(self, name: str, position: int) -> tuple[TensorInfo, Memory]:
        in_order = position == self._next
        if not in_order:
            self._row = 0
        most = WORTH_A_LOAD if in_order else WORTH_A_LOAD_ALONE
        found = self._loaded.get(name)
        if found is None:
            if self._shares:
                info, maps = self.model._mappable(position, most)
                found = self._map(info) if maps else None
            else:
                if self._row >= WORTH_A_LOAD:
                    most = ALONE
                info, found = self.model._small(position, most, not in_order)
            if found is None:
                found = self._load_ahead(name, position)
        else:
            info = self.model[name]
        if self._shares:
            self._loaded[name] = found
        else:
            self._loaded.pop(name, None)
        self._next = position + 1
        self._row += info.nbytes
        return info, found

    def _load_ahead(self, name: str, position: int) -> Memory:
        names, room = [name], self._row
        for number in range(position + 1, len(self._names)):
            following = self._names[number]
            room -= self.model[following].nbytes
            if room < 0 or following in self._loaded:
                break
            names.append(following)
        loaded = self._load_only(names)
        self._loaded.update(loaded)
        return loaded[name]

    def _load(self, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self._loaded]
        sizes = [self.model[name].nbytes for name in missing] if len(missing) <= FEW else [WORTH_A_LOAD]
        if sum(sizes) < WORTH_A_LOAD:
            for name in missing:
                self._loaded[name] = self._map(self.model[name])
        elif missing:
            self._loaded.update(self._load_only(missing))

    def _load_only(self, names: list[str]) -> dict[str, Tensor]:
        only = names if len(names) < len(self._names) else None
        return dict(self.model.load(only=only, kind="private", writable=True).items())

    def _map(self, info: TensorInfo) -> Memory:
        first, last = info.offset, info.offset + info.nbytes
        if first == last:
            return bytearray()
        mapped = self._maps.get(info.file)
        if mapped is None:
            fd = self.model._fd(info.file)
            self._maps[info.file] = mapped = memoryview(mmap(fd, 0, MAP_PRIVATE, PROT_READ | PROT_WRITE))
        if last > len(mapped):
            raise ValueError(f"{self.model.files[info.file]}: the range exceeds the file")
        # torch wants elements that are aligned.
        return mapped[first:last] if first % info.block[1] == 0 else bytearray(mapped[first:last])

    def _in_child(self) -> None:
        # A thread of the parent may have it.
        self._lock = Lock()


class HasName:
    """An object that represents a tensor."""

    name: str


_files: WeakSet[Lazy] = WeakSet()


def _after_fork() -> None:
    for file in list(_files):
        file._in_child()


os.register_at_fork(after_in_child=_after_fork)
