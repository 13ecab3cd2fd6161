# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lifetime under abuse: no crash, no leak, no byte that changes under a view."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import dmabuf_dio
from dmabuf_dio import Buffer
from dmabuf_dio.types import Kind

LOADS = int(os.environ.get("DMABUF_DIO_LOADS", "1000"))
SMALL = 20_000


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def small(folder: Path) -> Path:
    path = folder / "small"
    path.write_bytes(random.Random(1).randbytes(SMALL))
    return path


def test_nothing_is_lost_in_thousands_of_loads(small: Path) -> None:
    """Files, memory and capsules: DMABUF_DIO_LOADS=10000 for as many."""
    content = small.read_bytes()
    kinds: list[Kind] = ["memfd", "private"]
    kept: list[object] = []

    def load(number: int) -> None:
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

    for number in range(300):
        load(number)
    kept.clear()
    gc.collect()
    files, memory = len(os.listdir("/proc/self/fd")), resident()
    for number in range(LOADS):
        load(number)
    kept.clear()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == files
    assert len(os.listdir("/proc/self/task")) <= 2
    # Less than a tenth of a page for each.
    assert resident() - memory < max(LOADS * 400, 1 << 20)


def test_views_in_many_threads(file: Path, content: bytes) -> None:
    """Views come and go in eight threads, while another tries to close and to overwrite."""
    with dmabuf_dio.load(file, kind="memfd", writable=True) as buffer:
        over = threading.Event()
        wrong: list[object] = []
        refused = 0

        def look() -> None:
            number = random.Random(threading.get_ident())
            while not over.is_set():
                at = number.randrange(len(content) - 10_000)
                try:
                    if number.random() < 0.5:
                        found = bytes(memoryview(buffer)[at : at + 10_000])
                    else:
                        found = np.from_dlpack(buffer)[at : at + 10_000].tobytes()
                except BufferError as error:
                    assert "transfer" in str(error)
                    continue
                if found != content[at : at + 10_000]:
                    wrong.append(at)

        threads = [threading.Thread(target=look) for _ in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(100):
            try:
                dmabuf_dio.load_into(file, buffer)
            except BufferError:
                refused += 1
        over.set()
        for thread in threads:
            thread.join()
        assert not wrong
        assert refused > 0


def test_loads_in_many_threads(file: Path, content: bytes) -> None:
    wrong: list[object] = []

    def load() -> None:
        for kind in ("memfd", "private"):
            with dmabuf_dio.load(file, kind=kind) as buffer:
                if bytes(buffer) != content:
                    wrong.append(kind)

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_no_byte_changes_under_a_view(small: Path, file: Path) -> None:
    """Many loads beside views that stay: nothing is used again before its last view is gone."""
    views = [np.from_dlpack(dmabuf_dio.load(small, kind="private")) for _ in range(50)]
    tensors = [memoryview(dmabuf_dio.load(small, kind="memfd")) for _ in range(50)]
    content = small.read_bytes()
    for _ in range(20):
        dmabuf_dio.load(file, kind="private")
        dmabuf_dio.load(file, kind="memfd")
    assert all(view.tobytes() == content for view in views)
    assert all(view == content for view in tensors)
    # Nobody else writes a memfd that is only to be read.
    with dmabuf_dio.load(small, kind="memfd") as buffer:
        with pytest.raises(PermissionError):
            os.write(os.open(buffer.path, os.O_RDWR), b"x")


def run(program: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_child_has_what_its_parent_loaded(small: Path) -> None:
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


def test_a_subinterpreter_is_refused(small: Path) -> None:
    """PyO3 has one state for a process: a second interpreter gets an ImportError."""
    assert "ok" in run(
        """
import sys, dmabuf_dio
view = memoryview(dmabuf_dio.load(sys.argv[1], kind="memfd"))
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
one = interpreters.create()
found = interpreters.run_string(one, '''
try:
    import dmabuf_dio
except ImportError as error:
    assert "interpreter" in str(error), error
else:
    raise AssertionError("imported")
''')
assert found is None, found
interpreters.destroy(one)
assert view == open(sys.argv[1], "rb").read()
print("ok")
""",
        small,
    )


def test_views_live_until_the_interpreter_ends(small: Path) -> None:
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


def test_a_file_that_shrinks_during_the_load(folder: Path) -> None:
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


def test_a_buffer_that_is_closed_while_it_is_saved(file: Path, folder: Path, content: bytes) -> None:
    buffer = Buffer.alloc(len(content), kind="memfd")
    dmabuf_dio.load_into(file, buffer)

    def progress(done: int, total: int) -> None:
        with pytest.raises(BufferError, match="transfer from the buffer is running"):
            buffer.close()
        with pytest.raises(BufferError, match="transfer from the buffer is running"):
            dmabuf_dio.load_into(file, buffer)

    dmabuf_dio.save(buffer, folder / "busy", progress=progress)
    assert (folder / "busy").read_bytes() == content
    buffer.close()
