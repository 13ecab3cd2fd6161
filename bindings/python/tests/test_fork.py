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
from helpers import beside, refused

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


class Slow:
    """A model whose loads in this process last until they are told to end."""

    def __init__(self, path: Any) -> None:
        self.model = Slow.opened(path)
        self.process = os.getpid()
        self.begun, self.may_end = threading.Event(), threading.Event()
        Slow.last = self

    opened: Any
    last: Slow

    def __getitem__(self, name: str) -> Any:
        return self.model[name]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.model, name)
        if name not in ("load", "_load_with", "_small", "_part", "_mappable"):
            return found

        def wait(*arguments: Any, **options: Any) -> Any:
            if os.getpid() == self.process:
                self.begun.set()
                assert self.may_end.wait(300)
            return found(*arguments, **options)

        return wait


@pytest.mark.parametrize("request_", ["file.get_tensor('a')", "file.get_tensors()", "file.get_slice('a')[0:5]"])
def test_fork_during_a_load_from_the_file_works(model: Path, request_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Slow.opened = dmabuf_dio.Model
    monkeypatch.setattr("dmabuf_dio._safe_open.Model", Slow)
    file: Any = dmabuf_dio.safe_open(model, "np")
    thread = threading.Thread(target=lambda: eval(request_, {"file": file}))
    thread.start()
    try:
        assert Slow.last.begun.wait(300)

        def work() -> None:
            for name in "abcd":
                assert (file.get_tensor(name) == ord(name)).all()
                assert (file.get_slice(name)[7:9] == ord(name)).all()
            assert list(file.get_tensors()) == list("abcd")

        child(work)
    finally:
        Slow.last.may_end.set()
        thread.join()


def test_fork_while_threads_load_works(model: Path) -> None:
    """The same without a hand in it."""
    file: Any = dmabuf_dio.safe_open(model, "np")

    def load() -> None:
        for name in "abcd":
            file.get_tensor(name)

    with beside(load, load):
        for _ in range(10):
            child(load)


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
