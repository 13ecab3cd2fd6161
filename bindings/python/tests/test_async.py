# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads that are awaited."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

import dmabuf_dio


def test_concurrent_async_loads_are_correct(file: Path, content: bytes) -> None:
    told: list[tuple[int, int]] = []
    threads: set[int] = set()

    def progress(done: int, total: int) -> None:
        told.append((done, total))
        threads.add(threading.get_ident())

    async def main() -> None:
        buffers = await asyncio.gather(*(dmabuf_dio.aload(file, kind="memfd", progress=progress) for _ in range(4)))
        for buffer in buffers:
            with buffer, memoryview(buffer) as view:
                assert view == content

    asyncio.run(main())
    assert (len(content), len(content)) in told
    assert threads == {threading.get_ident()}


def test_errors_are_raised_in_the_task() -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(dmabuf_dio.aload("/nowhere", kind="memfd"))


def test_cancelling_the_task_cancels_the_load(file: Path) -> None:
    async def main() -> bool:
        started = asyncio.Event()
        load = asyncio.create_task(
            dmabuf_dio.aload(
                file,
                kind="memfd",
                block_size=4096,
                queue_depth=1,
                progress=lambda done, total: started.set(),
            )
        )
        await started.wait()
        load.cancel()
        try:
            (await load).close()
        except asyncio.CancelledError:
            return True
        return False

    before = len(os.listdir("/proc/self/fd"))
    assert any(asyncio.run(main()) for _ in range(20))
    assert len(os.listdir("/proc/self/fd")) == before
    assert not [thread for thread in threading.enumerate() if "dmabuf" in thread.name]
