# SPDX-License-Identifier: MIT OR Apache-2.0
"""The memory of a program that loads files, at its peak, with the pages of the files in the page cache."""

import contextlib
import ctypes
import mmap
import os
import subprocess
import threading
from collections.abc import Sequence

import numpy

LIBC = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """The program did not load; the last line of its errors."""


def resident(process: int) -> int:
    """Bytes of a process that are no file's; 0 once it has ended."""
    try:
        with open(f"/proc/{process}/status", encoding="ascii") as status:
            fields = dict(line.split(":", 1) for line in status)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    names = ("RssAnon", "RssShmem", "HugetlbPages")
    return sum(int(fields[name].split()[0]) << 10 for name in names if name in fields)


class Pages:
    """The pages of a file in the page cache."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        view = numpy.frombuffer(self.map, dtype=numpy.uint8)
        self.address, self.size = view.ctypes.data, len(view)
        self.found = numpy.empty(-(-self.size // mmap.PAGESIZE), dtype=numpy.uint8)

    def bytes(self) -> int:
        if LIBC.mincore(ctypes.c_void_p(self.address), ctypes.c_size_t(self.size), ctypes.c_void_p(self.found.ctypes.data)):
            raise OSError(ctypes.get_errno(), "mincore()")
        return int(numpy.count_nonzero(self.found & 1)) * mmap.PAGESIZE


def drop(path: str) -> None:
    """Drops a file from the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def watch(command: Sequence[str], paths: Sequence[str]) -> tuple[str, int, int]:
    """Runs a program that prints a line, waits for one, loads the files, prints a line, and keeps what it loaded until
    its input ends: the second line, and when both had the most bytes together, those that the process grew by, and those
    in the page cache."""
    for path in paths:
        drop(path)
    files = [Pages(path) for path in paths]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout and process.stderr
        # Or a program that has much to say waits for its reader.
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.extend(process.stderr or ()))
        reader.start()
        process.stdout.readline()
        before = resident(process.pid)
        seen = [(0, 0)]
        over = threading.Event()

        def look() -> None:
            process_bytes, cached = resident(process.pid) - before, sum(file.bytes() for file in files)
            seen[0] = max(seen[0], (process_bytes, cached), key=sum)

        def watch_on() -> None:
            while not over.wait(0.001):
                look()

        watcher = threading.Thread(target=watch_on)
        watcher.start()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("\n")
            process.stdin.flush()
        loaded = process.stdout.readline()
        over.set()
        watcher.join()
        # While the tensors are there.
        look()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        reader.join()
    if not loaded:
        raise Failed(next((line.strip() for line in reversed(errors) if line.strip()), "no reason"))
    return (loaded, *seen[0])
