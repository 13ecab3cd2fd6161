# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tensors of an open file, loaded when they are requested."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ._native import Model, Tensor, TensorInfo, Tensors


class Lazy:
    """Tensors that were loaded stay loaded as long as this object exists.

    - A tensor requested by name is loaded alone. If the one before it in the file is loaded, those after it are
      loaded with it, as many bytes as were requested so far: a program that reads the whole file needs few loads,
      and one that uses some tensors reads at most twice their bytes.
    - A tensor that is sliced is loaded together with all others of which slices exist: transformers creates
      one of each tensor before it uses the first.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._names = model.keys()
        self._position = {name: number for number, name in enumerate(self._names)}
        self._loaded: dict[str, Tensor] = {}
        self._asked = 0
        # Slices end in any thread, also one that has the lock: no WeakSet, which must not change while it is read.
        self._slices: set[ref[HasName]] = set()
        self._lock = Lock()

    def info(self, name: str) -> TensorInfo:
        """The header's description of a tensor. Raises KeyError."""
        return self.model[name]

    def announce(self, piece: HasName) -> None:
        """A slice of a tensor may be used as long as `piece` exists."""
        with self._lock:
            self._slices.add(ref(piece, self._slices.discard))

    def tensor(self, name: str) -> Tensor:
        """A tensor. Raises KeyError."""
        with self._lock:
            if name not in self._loaded:
                self._load(self._following(name))
            return self._hand_out(name)

    def sliced(self, name: str) -> Tensor:
        """A tensor of which a slice is used."""
        with self._lock:
            if name not in self._loaded:
                pieces = [piece() for piece in self._slices.copy()]
                self._load({name, *(piece.name for piece in pieces if piece is not None)})
            return self._hand_out(name)

    def all(self, convert: Callable[[Tensor], Any], reads: Callable[[Tensor], bool]) -> dict[str, Any]:
        """What `convert` makes of each tensor, in the order of their bytes.

        Where nothing is loaded yet, most is made while the disk reads: `reads` says of which tensors `convert`
        needs the bytes.
        """

        def begin(tensors: Tensors) -> tuple[dict[str, Tensor], dict[str, Any]]:
            items = dict(tensors.items())
            return items, {name: None if reads(tensor) else convert(tensor) for name, tensor in items.items()}

        with self._lock:
            begun = None if self._loaded else self.model._load_with(begin)  # pyright: ignore[reportPrivateUsage]
            if begun is None:
                self._load(self._names)
                return {name: convert(self._loaded[name]) for name in self._names}
            self._loaded, made = begun
            for name, value in made.items():
                if value is None:
                    made[name] = convert(self._loaded[name])
            return made

    def _hand_out(self, name: str) -> Tensor:
        tensor = self._loaded[name]
        self._asked += tensor.nbytes
        return tensor

    def _following(self, name: str) -> list[str]:
        position = self._position[name]
        names, room = [name], self._asked
        if position == 0 or self._names[position - 1] not in self._loaded:
            return names
        for following in self._names[position + 1 :]:
            room -= self.model[following].nbytes
            if room < 0 or following in self._loaded:
                break
            names.append(following)
        return names

    def _load(self, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self._loaded]
        if missing:
            only = missing if len(missing) < len(self._names) else None
            self._loaded.update(self.model.load(only=only, kind="private", writable=True).items())


class HasName:
    """An object that represents a tensor."""

    name: str
