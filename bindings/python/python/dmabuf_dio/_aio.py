# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads for asyncio."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from ._native import Buffer, CancelToken, load

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from .types import LoadOptions, Source


async def aload(
    path: Source,
    *,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[LoadOptions],
) -> Buffer:
    """Like load(), in a thread of its own. Cancelling the task cancels the transfer.

    The progress callback is called in the event loop. When CancelledError is raised, the transfer has
    ended and its memory is free.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    cancel = CancelToken()
    result: list[Buffer] = []
    failure: list[BaseException] = []

    def tell(moved: int, total: int) -> None:
        if progress is not None:
            loop.call_soon_threadsafe(progress, moved, total)

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    def work() -> None:
        try:
            watch = tell if progress is not None else None
            result.append(load(path, progress=watch, cancel=cancel, **options))
        except BaseException as error:  # raised in the task
            failure.append(error)
        try:
            loop.call_soon_threadsafe(finish)
        except RuntimeError:  # the loop was closed meanwhile
            pass

    thread = threading.Thread(target=work, name="dmabuf_dio.aload", daemon=True)
    thread.start()
    try:
        await asyncio.shield(done)
    except asyncio.CancelledError:
        cancel.cancel()
        # A second cancellation does not leave the transfer behind, either.
        while not done.done():
            try:
                await asyncio.shield(done)
            except asyncio.CancelledError:
                continue
        raise
    finally:
        # It has nothing left to do.
        thread.join()
    if failure:
        raise failure.pop()
    return result.pop()
