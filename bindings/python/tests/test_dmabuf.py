# SPDX-License-Identifier: MIT OR Apache-2.0
"""dma-bufs, where this kernel has any: a guest does."""

from __future__ import annotations

import io
import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from helpers import together

import dmabuf_dio
from dmabuf_dio import Buffer


@pytest.fixture
def buffer(file: Path) -> Buffer:
    try:
        return dmabuf_dio.load(file, kind="dmabuf")
    except OSError as error:
        if os.environ.get("DMABUF_DIO_REQUIRE"):
            raise
        pytest.skip(str(error)[:60])


def test_cpu_access_lasts_as_long_as_a_view(buffer: Buffer, content: bytes) -> None:
    assert (buffer.kind, buffer.fd) == ("dmabuf", buffer.dmabuf_fd)
    assert not buffer.accessed
    one, two = memoryview(buffer), np.frombuffer(buffer, np.uint8)
    assert buffer.accessed
    assert one == content and two.tobytes() == content
    one.release()
    assert buffer.accessed
    del two
    assert not buffer.accessed
    tensor = np.from_dlpack(buffer)
    assert buffer.accessed
    assert tensor.tobytes() == content
    del tensor
    assert not buffer.accessed
    # Without a view, as torch.frombuffer() does.
    array = np.ndarray((10,), np.uint8, memoryview(buffer))
    assert buffer.accessed
    assert array.tobytes() == content[:10]
    del array
    with memoryview(buffer):
        pass
    assert not buffer.accessed
    buffer.close()


def test_cpu_access_ends_with_the_last_view_of_all_threads(buffer: Buffer) -> None:
    """Views that end in two threads at once, one of an array that keeps none."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    barrier = threading.Barrier(2)
    left: list[int] = []

    def look() -> None:
        for number in range(500):
            view = memoryview(buffer)
            array = np.ndarray((10,), np.uint8, view)
            barrier.wait()
            del array
            view.release()
            del view
            barrier.wait()
            if buffer.accessed:
                left.append(number)
            barrier.wait()

    assert together(look, look) == [None, None]
    sys.setswitchinterval(before)
    assert not left
    buffer.close()


def test_a_dmabuf_has_no_path(buffer: Buffer) -> None:
    with pytest.raises(io.UnsupportedOperation, match="no path"):
        _ = buffer.path
    buffer.close()


def test_guest_has_udmabuf_device() -> None:
    if os.environ.get("DMABUF_DIO_REQUIRE"):
        assert os.path.exists("/dev/udmabuf")


@pytest.mark.skipif(not os.path.exists("/dev/udmabuf"), reason="no /dev/udmabuf")
@pytest.mark.parametrize("length", [None, 2 << 20, 5])
def test_a_file_in_memory_is_a_dmabuf(file: Path, content: bytes, length: int | None) -> None:
    wanted = content[:length]
    with dmabuf_dio.load(file, kind="file", length=length) as buffer:
        assert Path(buffer.path).read_bytes() == wanted == bytes(buffer)
        assert not buffer.accessed
        with Buffer.from_fd(buffer.dmabuf_fd) as dmabuf:
            assert dmabuf.kind == "dmabuf"
            page = os.sysconf("SC_PAGESIZE")
            assert len(dmabuf) == -(-len(wanted) // page) * page
            assert bytes(dmabuf) == wanted.ljust(len(dmabuf), b"\0")
        with pytest.raises(PermissionError):
            os.pwrite(buffer.fd, b"x", 0)
    if length == 2 << 20:
        # The same pages, not a copy of them.
        with dmabuf_dio.load(file, kind="file", length=length, writable=True) as buffer:
            os.pwrite(buffer.fd, b"new", 4096)
            with Buffer.from_fd(buffer.dmabuf_fd) as dmabuf:
                assert bytes(dmabuf)[4096:4099] == b"new"


def test_dmabuf_is_saved_and_loaded_into(buffer: Buffer, file: Path, folder: Path, content: bytes) -> None:
    dmabuf_dio.save(buffer, folder / "copy")
    assert (folder / "copy").read_bytes() == content
    with Buffer.alloc(len(content)) as other:
        assert other.kind == "dmabuf"
        dmabuf_dio.load_into(file, other)
        assert bytes(other) == content
    gathered = dmabuf_dio.gather(file, [5, 8192], 4096)
    if gathered:
        assert gathered.buffer.kind == "dmabuf"
        assert gathered[0] == content[5:4101]
    with Buffer.from_fd(buffer.fd) as again:
        assert again.kind == "dmabuf"
        assert bytes(again)[: len(content)] == content


def test_a_child_does_not_end_the_access_of_its_parent(buffer: Buffer, content: bytes) -> None:
    view = memoryview(buffer)
    child = os.fork()
    if child == 0:
        good = bytes(view) == content
        view.release()
        buffer.close()
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert buffer.accessed
    assert bytes(view) == content
    view.release()
    assert not buffer.accessed
