# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lifetime under abuse: no crash, no leak, no byte that changes under a view."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers import beside, refused, run, together

import dmabuf_dio
from dmabuf_dio import Buffer
from dmabuf_dio.types import FileKind, Kind

LOADS = int(os.environ.get("DMABUF_DIO_LOADS", "1000"))
STRESS = float(os.environ.get("DMABUF_DIO_STRESS", "2"))
SMALL = 20_000


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def small(folder: Path) -> Path:
    path = folder / "small"
    path.write_bytes(random.Random(1).randbytes(SMALL))
    return path


@pytest.mark.parametrize("threads", [1, 6])
def test_thousands_of_loads_leak_nothing(small: Path, threads: int) -> None:
    """Files, memory and capsules: DMABUF_DIO_LOADS=10000 for as many."""
    content = small.read_bytes()
    kinds: list[Kind] = ["memfd", "private"]

    def load(number: int, kept: list[object]) -> None:
        buffer = dmabuf_dio.load(small, kind=kinds[number % 2])
        match number % 6:
            case 0:
                buffer.close()
            case 1:
                assert np.frombuffer(buffer, np.uint8).tobytes() == content
            case 2:
                buffer.__dlpack__(max_version=(1, 0))  # never consumed
            case 3:
                kept.append(np.from_dlpack(buffer))
            case 4:
                kept.append(memoryview(buffer))
            case _:
                with pytest.raises(FileNotFoundError):
                    dmabuf_dio.load("/nowhere")
        if len(kept) > 10:
            kept.pop(0)

    def loads(count: int) -> None:
        def work() -> None:
            kept: list[object] = []
            for number in range(count // threads):
                load(number, kept)

        assert together(*[work] * threads) == [None] * threads
        gc.collect()

    loads(1200)
    files = len(os.listdir("/proc/self/fd"))
    growths: list[int] = []
    # A leak shows in each round. The allocator also grows by itself, an arena for each
    # thread that meets another in it, but not for ever.
    limit = max(LOADS * 400, 1 << 20)  # less than a tenth of a page for each load
    while len(growths) < 5 and not any(growth < limit for growth in growths):
        before = resident()
        loads(LOADS)
        growths.append(resident() - before)
        assert len(os.listdir("/proc/self/fd")) == files
    print(f"{LOADS} loads in {threads} threads: {growths} bytes more, {files} descriptors")
    assert min(growths) < limit
    assert len(os.listdir("/proc/self/task")) <= 2


def test_views_in_many_threads_block_close_and_load(file: Path, content: bytes) -> None:
    """Views come and go in eight threads, while another tries to close and to overwrite."""
    with dmabuf_dio.load(file, kind="memfd", writable=True) as buffer:
        failed = 0

        def look() -> None:
            at = random.randrange(len(content) - 10_000)
            try:
                if random.random() < 0.5:
                    found = bytes(memoryview(buffer)[at : at + 10_000])
                else:
                    found = np.from_dlpack(buffer)[at : at + 10_000].tobytes()
            except BufferError as error:
                assert "transfer" in str(error)
            else:
                assert found == content[at : at + 10_000]

        with beside(*[look] * 8):
            for _ in range(100):
                try:
                    dmabuf_dio.load_into(file, buffer)
                except BufferError:
                    failed += 1
        assert failed > 0


def test_loads_in_many_threads_are_correct(file: Path, content: bytes) -> None:
    def load() -> None:
        for kind in ("memfd", "private"):
            with dmabuf_dio.load(file, kind=kind) as buffer:
                assert bytes(buffer) == content

    assert together(*[load] * 8) == [None] * 8


def test_objects_shared_by_threads_stay_correct(small: Path, folder: Path) -> None:
    """Six threads use the same buffers, close them, replace them: no crash, no wrong byte, no other errors than documented.

    It lasts DMABUF_DIO_STRESS seconds: what free-threaded Python has to stand."""
    content = small.read_bytes()
    rows = np.arange(4, dtype=np.int64) * 4096
    kinds: list[FileKind] = ["memfd", "private", "file"]
    end = time.monotonic() + STRESS
    wrong: list[str] = []
    used = Counter[str]()

    def fresh(number: random.Random) -> Buffer:
        return dmabuf_dio.load(small, kind=number.choice(kinds), writable=number.random() < 0.5)

    shared = [fresh(random.Random(seed)) for seed in range(3)]
    gatherer = dmabuf_dio.Gathering(small, dmabuf_dio.Buffer.alloc(1 << 20, kind="memfd"))

    def view(buffer: Buffer, number: random.Random) -> bool:
        at = number.randrange(SMALL)
        with memoryview(buffer) as seen:
            return bytes(seen[at:]) == content[at:]

    def array(buffer: Buffer, number: random.Random) -> bool:
        return bool(np.from_dlpack(buffer).tobytes() == content)

    def capsule(buffer: Buffer, number: random.Random) -> bool:
        buffer.__dlpack__(max_version=(1, 0))
        return True

    def into(buffer: Buffer, number: random.Random) -> bool:
        return dmabuf_dio.load_into(small, buffer).bytes == SMALL

    def save(buffer: Buffer, number: random.Random) -> bool:
        path = folder / f"stress-{threading.get_ident()}"
        dmabuf_dio.save(buffer, path)
        return path.read_bytes() == content

    def close(buffer: Buffer, number: random.Random) -> bool:
        buffer.close()
        return True

    def describe(buffer: Buffer, number: random.Random) -> bool:
        return len(buffer) == SMALL and "Buffer" in repr(buffer)

    def replace(buffer: Buffer, number: random.Random) -> bool:
        shared[number.randrange(len(shared))] = fresh(number)
        return True

    def gather(buffer: Buffer, number: random.Random) -> bool:
        found = gatherer.read(rows, rows, 4096)
        return not found.errors

    actions = [view, array, capsule, into, save, close, describe, replace, replace, gather]

    def work(seed: int) -> None:
        number = random.Random(seed)
        while time.monotonic() < end and not wrong:
            action = number.choice(actions)
            try:
                if not action(shared[number.randrange(len(shared))], number):
                    wrong.append(f"{action.__name__}: other bytes")
                used[action.__name__] += 1
            # Closed by another thread, in use by another one, or read-only.
            except (ValueError, BufferError):
                pass
            except BaseException as error:
                wrong.append(f"{action.__name__}: {error!r}")
                raise

    assert together(*(partial(work, seed) for seed in range(6))) == [None] * 6
    assert not wrong
    assert set(used) == {action.__name__ for action in actions}, used


def test_later_loads_change_no_byte_of_a_view(small: Path, file: Path) -> None:
    """Many loads while views stay: memory is not used again before its last view is gone."""
    views = [np.from_dlpack(dmabuf_dio.load(small, kind="private")) for _ in range(50)]
    tensors = [memoryview(dmabuf_dio.load(small, kind="memfd")) for _ in range(50)]
    content = small.read_bytes()
    for _ in range(20):
        dmabuf_dio.load(file, kind="private")
        dmabuf_dio.load(file, kind="memfd")
    assert all(view.tobytes() == content for view in views)
    assert all(view == content for view in tensors)
    # A memfd for reading has no other writers.
    with dmabuf_dio.load(small, kind="memfd") as buffer:
        with pytest.raises(PermissionError):
            os.write(os.open(buffer.path, os.O_RDWR), b"x")


def test_forked_child_keeps_loaded_buffers(small: Path) -> None:
    """After fork(): views stay, loads work; shared memory is shared, private memory is copied on write."""
    assert "ok" in run(
        """
import os, sys, dmabuf_dio
content = open(sys.argv[1], "rb").read()
buffers = [dmabuf_dio.load(sys.argv[1], kind=kind, writable=True) for kind in ("memfd", "private")]
views = [memoryview(buffer) for buffer in buffers]
child = os.fork()
if child == 0:
    assert all(view == content for view in views)
    for view in views:
        view[0] = (content[0] + 1) % 256
        view.release()
    for buffer in buffers:
        buffer.close()
    assert bytes(dmabuf_dio.load(sys.argv[1], kind="memfd")) == content
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
changed = bytes([(content[0] + 1) % 256]) + content[1:]
assert views[0] == changed and views[1] == content
print("ok")
""",
        small,
    )


def test_views_may_live_until_the_interpreter_ends(small: Path) -> None:
    assert "ok" in run(
        """
import sys, threading, dmabuf_dio, numpy
class Cycle: pass
cycle = Cycle(); cycle.me = cycle
cycle.views = [memoryview(dmabuf_dio.load(sys.argv[1], kind=kind)) for kind in ("memfd", "private")]
cycle.tensor = numpy.from_dlpack(dmabuf_dio.load(sys.argv[1], kind="memfd"))
capsule = dmabuf_dio.load(sys.argv[1], kind="private").__dlpack__(max_version=(1, 0))
threading.Thread(target=lambda: [dmabuf_dio.load(sys.argv[1], kind="memfd") for _ in range(200)], daemon=True).start()
print("ok")
""",
        small,
    )


def test_file_shrinking_during_load_raises_an_error(folder: Path) -> None:
    path = folder / "shrinks"
    for _ in range(10):
        path.write_bytes(bytes(4 << 20))
        shrinker = threading.Timer(0.001, os.truncate, (path, 4096))
        shrinker.start()
        try:
            with dmabuf_dio.load(path, kind="memfd", block_size=4096, queue_depth=1) as buffer:
                assert not any(bytes(buffer))
        except (EOFError, ValueError, OSError):
            pass
        shrinker.join()


def test_closing_a_buffer_during_save_is_refused(file: Path, folder: Path, content: bytes) -> None:
    buffer = Buffer.alloc(len(content), kind="memfd")
    dmabuf_dio.load_into(file, buffer)

    def progress(done: int, total: int) -> None:
        refused(BufferError, "transfer from the buffer is running", buffer.close)
        refused(BufferError, "transfer from the buffer is running", dmabuf_dio.load_into, file, buffer)

    dmabuf_dio.save(buffer, folder / "busy", progress=progress)
    assert (folder / "busy").read_bytes() == content
    buffer.close()
