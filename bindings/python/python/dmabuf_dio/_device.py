# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: reportPrivateUsage=false
"""CUDA and HIP devices by name, and tensors that are loaded to them ahead of the program."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from ._native import CancelToken, _Device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from typing import TypeVar

    Made = TypeVar("Made")

    from ._native import DeviceTensor, _Reader

# A driver's library in place of the vendor's
library: str | None = None

_NAME = re.compile("(cuda|hip)(?::(0|[1-9][0-9]{0,2}))?")

# Those that are in use: each has a ring of registered memory.
_opened: WeakValueDictionary[tuple[object, ...], _Device] = WeakValueDictionary()


def named(device: Any) -> tuple[str, int] | None:
    """The vendor and the number of a device: "cuda", "cuda:1", "hip:0", a number, a torch.device. None for others."""
    found = _NAME.fullmatch(f"cuda:{device}" if isinstance(device, int) else str(device))
    if found is None:
        return None
    kind, index = found.groups()
    torch: Any = sys.modules.get("torch")
    number = int(index) if index else _current(torch)
    # torch says "cuda" for both.
    return "hip" if torch and torch.version.hip else kind, number


def _current(torch: Any) -> int:
    return int(torch.cuda.current_device()) if torch and torch.cuda.is_initialized() else 0


def opened(device: Any) -> _Device:
    """A device by its name. It is the same one as long as anything uses it.

    Raises ValueError for a name that is none, RuntimeError without a driver.
    """
    found = named(device)
    if found is None:
        raise ValueError(f'device={device!r} is invalid: pass "cuda", "cuda:1" or "hip:0"')
    # A child of fork() must not use a device of its parent.
    key = (*found, library, os.getpid())
    one = _opened.get(key)
    if one is None:
        # Another thread may open it meanwhile.
        one = _opened.setdefault(key, _Device(*found, library))
    return one


def with_room(make: Callable[[], Made]) -> Made:
    """What a function makes in memory of a device: if there is too little, without what torch keeps there for later."""
    try:
        return make()
    except MemoryError:
        torch: Any = sys.modules.get("torch")
        if not torch or not torch.cuda.is_initialized():
            raise
        torch.cuda.empty_cache()
    return make()


def loaded_ahead(device: _Device, reader: _Reader, numbers: list[int]) -> Iterator[DeviceTensor]:
    """Tensors of a reader on a device: while some are used, the next are loaded.

    The program may still have one of a batch while it waits for the next, and another is loaded: each has a third of
    the window.
    """
    # Its import would delay every safe_open().
    from concurrent.futures import ThreadPoolExecutor

    token, process = CancelToken(), os.getpid()
    batches, total = reader.batches(numbers, reader.report()["window"] // 3)
    with ThreadPoolExecutor(1, "dmabuf-dio-device") as pool:
        try:
            before: Future[list[DeviceTensor]] | None = None
            for batch in batches:
                following = pool.submit(_load, device, reader, batch, total, token)
                if before is not None:
                    yield from _handed_out(before, process)
                before = following
                del following
            if before is not None:
                yield from _handed_out(before, process)
        finally:
            token.cancel()


def _load(
    device: _Device, reader: _Reader, batch: list[int], total: int, token: CancelToken
) -> list[DeviceTensor]:
    return with_room(lambda: device.own(reader, batch, total, token)[0])


def _handed_out(loaded: Future[list[DeviceTensor]], process: int) -> Iterator[DeviceTensor]:
    """One by one, and none is kept."""
    # A child of fork() has no thread that loads them.
    if os.getpid() != process:
        raise RuntimeError("tensors on a device of the parent process: spawn processes in place of fork()")
    tensors = loaded.result()
    tensors.reverse()
    while tensors:
        yield tensors.pop()
