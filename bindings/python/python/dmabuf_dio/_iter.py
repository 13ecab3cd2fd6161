# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: reportPrivateUsage=false
"""Tensors of a model, one after the other, as the disk delivers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from ._cuts import cuts
from ._native import Model, _Reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike
    from typing import Literal

    from ._native import DeviceTensor, Tensor, _Device
    from .types import Split


@overload
def iter_tensors(
    path: str | bytes | PathLike[str] | PathLike[bytes] | Model,
    *,
    only: Iterable[str] | None = None,
    window: int | None = None,
    order: Literal["file", "given"] = "file",
    shard: tuple[int, int] | None = None,
    split: Split | None = None,
    device: None = None,
) -> Iterator[tuple[str, Tensor]]: ...
@overload
def iter_tensors(
    path: str | bytes | PathLike[str] | PathLike[bytes] | Model,
    *,
    only: Iterable[str] | None = None,
    window: int | None = None,
    order: Literal["file", "given"] = "file",
    shard: tuple[int, int] | None = None,
    split: Split | None = None,
    device: object,
) -> Iterator[tuple[str, DeviceTensor]]: ...
def iter_tensors(
    path: str | bytes | PathLike[str] | PathLike[bytes] | Model,
    *,
    only: Iterable[str] | None = None,
    window: int | None = None,
    order: Literal["file", "given"] = "file",
    shard: tuple[int, int] | None = None,
    split: Split | None = None,
    device: object = None,
) -> Iterator[tuple[str, Tensor]] | Iterator[tuple[str, DeviceTensor]]:
    """The tensors of a model, or those named by `only`: name and tensor, which has writable memory of its own, freed with it.

    Those that follow are read ahead: at most `window` bytes, or one tensor; by default chosen from the speed of the disk
    and the free memory. `order`: that of the files, which is the fastest, or the one `given` by `only`.

    `shard`: the rank of this process and how many ranks there are, each of which reads its part of the tensors alone.
    `split`: how tensors are divided, by patterns of their names, of which the first that matches counts, or by a
    function of name and shape: "rows" (dimension 0), "columns" (dimension 1), another dimension, or None for all of it, as
    for tensors that no pattern matches. Each rank gets as many elements; `(dimension, [SIZE, ...])` divides each of
    several tensors that were joined, and `(dimension, [slice(START, STOP), ...])` names the elements.

    `device`: "cuda", "cuda:1", "hip:0" or a torch.device: tensors in its memory, several in each allocation, of which the
    next is loaded while one is used. Each has at most a third of the window, or one tensor.

    Raises KeyError for a name that the model does not have, ValueError for what cannot be divided, TypeError
    for what is no rule, RuntimeError for what a device's driver refuses, MemoryError if it has too little memory, and
    what a load raises.
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
        return _tensors(_Reader(model, window), numbers, device)
    if shard is None or split is None:
        raise ValueError("a rank's part of a model needs both: shard=(rank, world) and split=")
    if not isinstance(shard, tuple) or len(shard) != 2 or shard[0] < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"shard={shard!r} is invalid: pass the rank, from 0, and the number of ranks: shard=(0, 2)")
    return _tensors(_Reader(model, window, shard, cuts(model, numbers, split)), list(range(len(numbers))), device)


def _tensors(
    reader: _Reader, numbers: list[int], device: object
) -> Iterator[tuple[str, Tensor]] | Iterator[tuple[str, DeviceTensor]]:
    if device is None or str(device) == "cpu":
        return _on_host(reader, numbers)
    from ._device import opened

    return _on_device(reader, numbers, opened(device))


def _on_device(reader: _Reader, numbers: list[int], device: _Device) -> Iterator[tuple[str, DeviceTensor]]:
    from ._device import loaded_ahead

    for tensor in loaded_ahead(device, reader, numbers):
        yield tensor.name, tensor
        del tensor


def _on_host(reader: _Reader, numbers: list[int]) -> Iterator[tuple[str, Tensor]]:
    wanted = reader.want(numbers)
    for number in numbers:
        tensor = reader.tensor(number)
        yield tensor.name, tensor
        # Nobody may need it while the next is read.
        del tensor
    del wanted
