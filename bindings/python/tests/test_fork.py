# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic
"""Children of a process that forks while its other threads are at work: none waits for a thread that it does not have."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from helpers import beside, drop_cache, refused

import dmabuf_dio
from dmabuf_dio import Buffer
from dmabuf_dio.types import Backend


def child(work: Callable[[], object]) -> None:
    """Fork, and the end of the child: by a signal if it hangs."""
    process = os.fork()
    if process == 0:
        signal.alarm(60)
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            os.write(2, f"in the child: {error!r}\n".encode())
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    path = folder / "fork.safetensors"
    safetensors.numpy.save_file({name: np.full(3 << 20, ord(name), np.uint16) for name in "abcd"}, path)
    return path


@pytest.mark.parametrize("request_", ["file.get_tensor(name)", "file.get_slice(name)[0:5]", "file.get_tensors()[name]"])
def test_fork_while_threads_load_works(model: Path, request_: str) -> None:
    """Also while tensors are read ahead, in threads that the child does not have."""
    file: Any = dmabuf_dio.safe_open(model, "np")
    slices = [file.get_slice(name) for name in "abcd"]

    def load() -> None:
        for name in "abcd":
            drop_cache(model)
            assert (eval(request_, {"file": file, "name": name}) == ord(name)).all()

    def work() -> None:
        for name in "abcd":
            assert (file.get_tensor(name) == ord(name)).all()
            assert (file.get_slice(name)[7:9] == ord(name)).all()
        assert list(file.get_tensors()) == list("abcd")
        slices.clear()

    with beside(load, load):
        for _ in range(10):
            child(work)


def test_fork_during_install_works() -> None:
    from dmabuf_dio import _install

    def work() -> None:
        dmabuf_dio.install()
        dmabuf_dio.uninstall()

    with _install._changing:
        child(work)


def test_fork_while_views_begin_and_end_works() -> None:
    """Their locks are held without the GIL."""
    buffer = Buffer.alloc(1 << 16, kind="memfd")

    def look() -> None:
        view = memoryview(buffer)
        assert buffer.accessed in (True, False)
        view.release()
        del view

    def work() -> None:
        for _ in range(10):
            memoryview(buffer).release()
            assert buffer.accessed in (True, False)
        dmabuf_dio.load("/proc/self/exe", kind="memfd")

    with beside(*[look] * 4):
        for _ in range(300):
            child(work)


@pytest.mark.parametrize("backend", ["memfd", "buffered"])
@pytest.mark.parametrize("length", [4096, 300_001, (4 << 20) + 4096])
def test_fork_in_a_progress_callback_works(folder: Path, length: int, backend: Backend) -> None:
    """The child goes on in the callback, and has no thread that loads. While it stays there, the parent seals the memory."""
    parent = os.getpid()
    children: list[int] = []
    ends = os.pipe()
    file = folder / "loaded-while-forking"
    file.write_bytes(os.urandom(length))

    def progress(done: int, total: int) -> None:
        if not children:
            children.append(os.fork())
            if children[0] == 0:
                signal.alarm(60)
                os.read(ends[0], 1)

    try:
        buffer = dmabuf_dio.load(file, kind="memfd", length=length, backend=backend, progress=progress)
        os.write(ends[1], b"!")
    except OSError as error:
        if os.getpid() != parent:
            os._exit(0 if "gone" in str(error) else 2)
        raise
    finally:
        if os.getpid() != parent:
            os._exit(3)
    assert bytes(buffer) == file.read_bytes()[:length]
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0


def test_child_cannot_use_the_stream_of_its_parent(file: Path, folder: Path) -> None:
    reader = dmabuf_dio.read_blocks(file, block_size=4096)
    writer = dmabuf_dio.write_blocks(folder / "fork-out", block_size=4096)
    block = next(writer)

    def work() -> None:
        for use in (lambda: next(reader), lambda: next(writer), lambda: writer.put(block), lambda: reader.how):
            refused(RuntimeError, "after fork", use)
        reader.close()
        assert writer.close() == 0

    child(work)
    assert bytes(next(reader)) == file.read_bytes()[:4096]
    writer.put(block)
    assert writer.close() == 4096
