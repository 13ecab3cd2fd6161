# SPDX-License-Identifier: MIT OR Apache-2.0
"""The memory of a program that loads files, at its peak, with the pages of the files in the page cache."""

import contextlib
import ctypes
import mmap
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Self

import numpy

LIBC = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """The program did not load; the last line of its errors."""


def status(process: int, *names: str) -> int:
    """Bytes that fields of /proc/PID/status have together; 0 once the process has ended."""
    try:
        with open(f"/proc/{process}/status", encoding="ascii") as lines:
            fields = dict(line.split(":", 1) for line in lines)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(fields[name].split()[0]) << 10 for name in names if name in fields)


def resident(process: int) -> int:
    """Bytes of a process that are no file's; 0 once it has ended."""
    return status(process, "RssAnon", "RssShmem", "HugetlbPages")


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


class Program:
    """A program that prints a line, waits for one, loads files, prints a line, and keeps what it loaded until its input ends."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        # Or a program that has much to say waits for its reader.
        self.errors: list[str] = []
        self.reader = threading.Thread(target=lambda: self.errors.extend(self.process.stderr or ()))
        self.reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def line(self) -> str:
        """The next line; waits for it."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            self.end()
            raise Failed(next((line.strip() for line in reversed(self.errors) if line.strip()), "no reason"))
        return line

    def load(self, look: Callable[[], None], every: float = 0.001) -> str:
        """Lets it load: its second line. `look` is called all the time, and once more while what was loaded is there."""
        over = threading.Event()

        def watch_on() -> None:
            while not over.wait(every):
                look()

        watcher = threading.Thread(target=watch_on)
        watcher.start()
        assert self.process.stdin
        try:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write("\n")
                self.process.stdin.flush()
            loaded = self.line()
        finally:
            over.set()
            watcher.join()
        look()
        return loaded

    def end(self) -> str:
        """Ends its input: what else it prints until it ends."""
        assert self.process.stdin and self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        rest = "" if self.process.stdout.closed else self.process.stdout.read()
        self.process.stdout.close()
        self.process.wait()
        self.reader.join()
        return rest


def watch(command: Sequence[str], paths: Sequence[str]) -> tuple[str, int, int]:
    """Lets a program load files: its second line, and when both had the most bytes together, those that the process grew
    by, and those in the page cache."""
    for path in paths:
        drop(path)
    files = [Pages(path) for path in paths]
    seen = [(0, 0)]
    with Program(command) as program:
        program.line()
        before = resident(program.pid)

        def look() -> None:
            process_bytes, cached = resident(program.pid) - before, sum(file.bytes() for file in files)
            seen[0] = max(seen[0], (process_bytes, cached), key=sum)

        loaded = program.load(look)
    return (loaded, *seen[0])
