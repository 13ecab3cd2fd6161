# SPDX-License-Identifier: MIT OR Apache-2.0
"""Code for several tests."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def refused(error: type[BaseException], match: str, call: Callable[..., object], *arguments: Any, **options: Any) -> Any:
    """The exception of a call."""
    with pytest.raises(error, match=match or None) as raised:
        call(*arguments, **options)
    # The traceback would keep the arguments.
    return raised.value.with_traceback(None)


def together(*works: Callable[[], object]) -> list[object]:
    """The results or exceptions of calls, all begun at the same moment in threads."""
    barrier = threading.Barrier(len(works))

    def begin(work: Callable[[], object]) -> object:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        threads = [pool.submit(begin, work) for work in works]
        return [thread.exception() or thread.result() for thread in threads]


def drop_cache(path: Path) -> None:
    """Removes a file from the page cache, as far as nobody maps it."""
    file = os.open(path, os.O_RDONLY)
    size = os.fstat(file).st_size
    # Pages stay that another processor has in hand at that moment.
    for _ in range(20):
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        if size == 0 or not _cached(path):
            break
    os.close(file)


def _cached(path: Path) -> bool:
    # Unlike a read without waiting, this makes the kernel read nothing.
    command = ["fincore", "--bytes", "--noheadings", "--output=RES", str(path)]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout) > 0


@contextmanager
def beside(*works: Callable[[], object]) -> Generator[None, None, None]:
    """Repeats works in threads. None of them may raise."""
    over = threading.Event()

    def repeat(work: Callable[[], object]) -> None:
        while not over.is_set():
            work()

    with ThreadPoolExecutor(len(works)) as pool:
        threads = [pool.submit(repeat, work) for work in works]
        try:
            yield
        finally:
            over.set()
    assert [thread.exception() for thread in threads] == [None] * len(works)


def run(program: str, *arguments: object) -> str:
    """What a Python program prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
