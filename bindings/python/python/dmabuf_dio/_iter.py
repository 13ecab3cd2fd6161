# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: reportPrivateUsage=false
"""Tensors of a model, one after the other, as the disk delivers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._cuts import cuts
from ._native import Model, _Reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike
    from typing import Literal

    from ._native import Tensor
    from .types import Split


def iter_tensors(
    path: str | bytes | PathLike[str] | PathLike[bytes] | Model,
    *,
    only: Iterable[str] | None = None,
    window: int | None = None,
    order: Literal["file", "given"] = "file",
    shard: tuple[int, int] | None = None,
    split: Split | None = None,
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a model, or those named by `only`: name and tensor, which has writable memory of its own, freed with it.

    Those that follow are read ahead: at most `window` bytes, or one tensor; by default chosen from the speed of the disk
    and the free memory. `order`: that of the files, which is the fastest, or the one `given` by `only`.

    `shard`: the rank of this process and how many ranks there are, each of which reads its part of the tensors alone.
    `split`: how tensors are divided, by patterns of their names, of which the first that matches counts, or by a
    function of name and shape: "rows" (dimension 0), "columns" (dimension 1), another dimension, or None for all of it, as
    for tensors that no pattern matches. Each rank gets as many elements; `(dimension, [SIZE, ...])` divides each of
    several tensors that were joined, and `(dimension, [slice(START, STOP), ...])` names the elements.

    Raises KeyError for a name that the model does not have, ValueError for what cannot be divided, TypeError
    for what is no rule, and what a load raises.
    """
    model = path if isinstance(path, Model) else Model(path)
    position = {name: number for number, name in enumerate(model.keys())}
    if order not in ("file", "given"):
        raise ValueError(f'order "{order}" is invalid: choose "file" or "given"')
    if only is None:
        numbers = list(position.values())
    else:
        numbers = [position[name] for name in dict.fromkeys(only)]
        if order == "file":
            numbers.sort()
    if shard is None and split is None:
        return _tensors(_Reader(model, window), numbers)
    if shard is None or split is None:
        raise ValueError("a rank's part of a model needs both: shard=(rank, world) and split=")
    if not isinstance(shard, tuple) or len(shard) != 2 or shard[0] < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"shard={shard!r} is invalid: pass the rank, from 0, and the number of ranks: shard=(0, 2)")
    return _tensors(_Reader(model, window, shard, cuts(model, numbers, split)), list(range(len(numbers))))


def _tensors(reader: _Reader, numbers: list[int]) -> Iterator[tuple[str, Tensor]]:
    wanted = reader.want(numbers)
    for number in numbers:
        tensor = reader.tensor(number)
        yield tensor.name, tensor
        # Nobody may need it while the next is read.
        del tensor
    del wanted
