# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads, saves, and their exceptions."""

from __future__ import annotations

import errno
import io
import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any, Literal

import pytest
from helpers import beside, refused, run

import dmabuf_dio
from dmabuf_dio import Buffer
from dmabuf_dio.types import FileKind, Numa

KINDS: list[FileKind] = ["memfd", "file", "private", "any"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("offset", "length"), [(0, None), (4096, 8192), (1, None), (4097, 1), (1 << 20, 3 << 20)])
def test_every_byte_is_loaded(file: Path, content: bytes, kind: FileKind, offset: int, length: int | None) -> None:
    wanted = content[offset : None if length is None else offset + length]
    with dmabuf_dio.load(file, kind=kind, offset=offset, length=length) as buffer:
        assert len(buffer) == buffer.len == len(wanted)
        with memoryview(buffer) as view:
            assert view == wanted
            assert view.readonly
        assert buffer.report is not None
        assert buffer.report.bytes == len(wanted)
        if buffer.kind in ("memfd", "file"):
            assert os.pread(buffer.fd, len(wanted), buffer.data_offset) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_placed_and_locked_on_request(file: Path, content: bytes, kind: FileKind) -> None:
    with dmabuf_dio.load(file, kind=kind) as buffer:
        assert buffer.report is not None
        assert (buffer.report.numa, buffer.report.nodes, buffer.report.locked) == (None, None, False)
    values: list[Numa] = ["local", "interleave", 0]
    for numa in values:
        with dmabuf_dio.load(file, kind=kind, numa=numa, lock=True, length=8192) as buffer, memoryview(buffer) as view:
            assert view == content[:8192]
            report = buffer.report
            assert report is not None
            assert report.numa == numa
            assert report.locked
            assert report.nodes is None or sum(report.nodes.values()) >= 8192
            assert pickle.loads(pickle.dumps(report)).nodes == report.nodes
    with pytest.raises(ValueError, match="node 1023 has no memory") as raised:
        dmabuf_dio.load(file, kind=kind, numa=1023)
    assert "choose another numa" in raised.value.__notes__[0]
    wrong: Any
    for wrong in ("", "0", "Local"):
        with pytest.raises(ValueError, match="numa must be"):
            dmabuf_dio.load(file, kind=kind, numa=wrong)
    for wrong in (1.5, [0]):
        with pytest.raises(TypeError):
            dmabuf_dio.load(file, kind=kind, numa=wrong)


def test_load_takes_path_file_and_descriptor(file: Path, content: bytes) -> None:
    with file.open("rb") as opened:
        opened.seek(5)
        for source in (str(file), os.fsencode(file), file, opened, opened.fileno()):
            with dmabuf_dio.load(source, kind="memfd") as buffer, memoryview(buffer) as view:
                assert view == content
        assert opened.tell() == 5


def test_a_memfd_has_a_path(file: Path, content: bytes) -> None:
    with dmabuf_dio.load(file, kind="memfd") as buffer:
        assert Path(buffer.path).read_bytes() == content
        assert os.stat(buffer.path).st_size == len(content)
        # It can no longer be changed.
        with pytest.raises(PermissionError):
            os.pwrite(buffer.fd, b"x", 0)
        with pytest.raises(io.UnsupportedOperation, match="not a dma-buf"):
            _ = buffer.dmabuf_fd


@pytest.mark.parametrize(("offset", "length"), [(0, None), (4096, 8192), (3, 4099), (1, 1)])
def test_file_kind_has_a_path_and_is_read_only(file: Path, content: bytes, offset: int, length: int | None) -> None:
    """The content and nothing else by path; its dma-buf where there is one, else the reason why not."""
    wanted = content[offset : None if length is None else offset + length]
    with dmabuf_dio.load(file, kind="file", offset=offset, length=length) as buffer:
        assert (buffer.kind, buffer.data_offset) == ("file", 0)
        assert os.stat(buffer.path).st_size == len(wanted)
        assert Path(buffer.path).read_bytes() == wanted
        with pytest.raises(PermissionError):
            os.pwrite(buffer.fd, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(buffer.fd, 0)
        if os.access("/dev/udmabuf", os.R_OK | os.W_OK):
            assert buffer.dmabuf_fd != buffer.fd
        else:
            with pytest.raises(io.UnsupportedOperation, match="no dma-buf: udmabuf: .*/dev/udmabuf") as raised:
                _ = buffer.dmabuf_fd
            assert raised.value.__notes__


def test_writable_file_kind_can_be_written(file: Path, content: bytes) -> None:
    with dmabuf_dio.load(file, kind="file", writable=True) as buffer:
        with memoryview(buffer) as view:
            view[:3] = b"new"
        assert Path(buffer.path).read_bytes() == b"new" + content[3:]
        dmabuf_dio.load_into(file, buffer)
        assert Path(buffer.path).read_bytes() == content


def test_private_memory_has_no_descriptor(file: Path) -> None:
    with dmabuf_dio.load(file, kind="private") as buffer:
        for use in ("fd", "path", "dmabuf_fd"):
            with pytest.raises(io.UnsupportedOperation):
                getattr(buffer, use)


def test_progress_is_called_in_the_loading_thread(file: Path, content: bytes) -> None:
    told: list[tuple[int, int]] = []
    threads: set[int] = set()

    def progress(done: int, total: int) -> None:
        told.append((done, total))
        threads.add(threading.get_ident())

    dmabuf_dio.load(file, kind="memfd", progress=progress, block_size=1 << 20).close()
    assert told[-1] == (len(content), len(content))
    assert told == sorted(told)
    assert threads == {threading.get_ident()}


def test_raising_progress_callback_ends_the_load(file: Path) -> None:
    def progress(done: int, total: int) -> None:
        raise ZeroDivisionError

    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            dmabuf_dio.load(file, kind="memfd", progress=progress)
    assert len(os.listdir("/proc/self/fd")) == before


def test_cancelled_load_raises_an_error(file: Path) -> None:
    token = dmabuf_dio.CancelToken()
    token.cancel()
    assert token.cancelled

    # The token is looked at when the load tells something.
    with pytest.raises(OSError) as raised:
        for _ in range(1000):
            dmabuf_dio.load(file, kind="memfd", cancel=token, block_size=4096, queue_depth=1).close()
    assert raised.value.errno == errno.ECANCELED
    assert raised.value.filename == str(file)


@pytest.mark.parametrize(
    ("path", "kind", "number"),
    [
        ("missing", FileNotFoundError, errno.ENOENT),
        (".", IsADirectoryError, errno.EISDIR),
        ("content/x", NotADirectoryError, errno.ENOTDIR),
    ],
)
def test_system_errors_raise_their_exceptions(file: Path, path: str, kind: type[OSError], number: int) -> None:
    wanted = str(file.parent / path)
    raised = refused(kind, "", dmabuf_dio.load, wanted, kind="memfd")
    assert raised.errno == number
    assert Path(raised.filename) == Path(wanted)
    assert raised.__notes__  # what to do


def test_wrong_arguments_raise_errors(file: Path, content: bytes, folder: Path) -> None:
    empty = folder / "empty"
    empty.touch()
    refused(ValueError, "empty", dmabuf_dio.load, empty, kind="memfd")
    refused(ValueError, "exceeds the file", dmabuf_dio.load, file, kind="memfd", offset=len(content))
    refused(ValueError, "block_size", dmabuf_dio.load, file, kind="memfd", block_size=3)
    refused(ValueError, "private", dmabuf_dio.load, file, kind="x")
    refused(ValueError, "no backend", dmabuf_dio.load, file, backend="x")
    refused(ValueError, "null byte", dmabuf_dio.load, "a\0b")
    with pytest.raises(TypeError):
        dmabuf_dio.load(3.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(OverflowError) as raised_:
        dmabuf_dio.load(file, kind="memfd", offset=-1)
    assert raised_.value.__notes__ == ["while processing 'offset'"]
    refused(TypeError, r"load\(\) got an unexpected keyword argument 'buf_offset'", dmabuf_dio.load, file, buf_offset=0)
    refused(ValueError, "negative", dmabuf_dio.load, -1)
    raised = refused(OSError, "", dmabuf_dio.load, 10**6)
    assert raised.errno == errno.EBADF


def test_default_load_gives_a_dmabuf_or_an_error(file: Path) -> None:
    if any(
        backend["available"]
        for backend in dmabuf_dio.doctor()["backends"]
        if backend["backend"] in ("module", "slot", "heap", "udmabuf", "copy_file_range")
    ):
        with dmabuf_dio.load(file) as buffer:
            assert buffer.kind == "dmabuf"
        with dmabuf_dio.load(file, kind="dmabuf") as buffer:
            assert buffer.dmabuf_fd == buffer.fd
        return
    raised = refused(OSError, "no dma-buf can be created here", dmabuf_dio.load, file, kind="dmabuf")
    assert raised.errno == errno.EOPNOTSUPP
    # One line, one that says what to do, and the reasons for those who ask.
    assert str(raised) == f"[Errno {errno.EOPNOTSUPP}] no dma-buf can be created here"
    (note,) = raised.__notes__
    assert 'any kind of buffer: kind="any"' in note
    refusals: list[Any] = getattr(raised, "refusals")
    assert [refusal.backend for refusal in refusals][:2] == ["module", "slot"]
    assert all(refusal.reason for refusal in refusals)
    # Pools of processes pass exceptions on.
    again = pickle.loads(pickle.dumps(raised))
    assert (str(again), again.refusals, again.__notes__) == (str(raised), refusals, raised.__notes__)
    with dmabuf_dio.load(file) as buffer:
        assert buffer.kind == "memfd"


def test_reports_are_pickled(file: Path) -> None:
    report = dmabuf_dio.load(file, kind="memfd").report
    assert report
    again = pickle.loads(pickle.dumps(report))
    assert str(again) == str(report) and again.as_dict() == report.as_dict()
    names = [name for name in dir(report) if not name.startswith("__") and name != "as_dict"]
    assert len(names) == 21
    for name in names:
        assert getattr(again, name) == getattr(report, name), name
    told = report.as_dict()
    for name in ("operation", "backend", "mode", "bytes", "seconds", "cpu_seconds", "gb_per_second", "notes"):
        assert getattr(report, name) == told[name], name
    # The reasons of every backend that came before.
    assert [refusal.backend for refusal in again.refusals] == [refusal["backend"] for refusal in told["refusals"]]


def test_save_writes_the_buffer_or_a_part(file: Path, folder: Path, content: bytes) -> None:
    copy = folder / "copy"
    with dmabuf_dio.load(file, kind="memfd") as buffer:
        report = dmabuf_dio.save(buffer, copy)
        assert (report.operation, report.bytes) == ("save", len(content))
        assert copy.read_bytes() == content
        dmabuf_dio.save(buffer, copy, buf_offset=5, length=8193)
        assert copy.read_bytes() == content[5 : 5 + 8193]
        with copy.open("r+b") as opened:
            dmabuf_dio.save(buffer, opened, buf_offset=1, length=3, offset=4)
        assert copy.read_bytes() == content[5:9] + content[1:4] + content[12 : 5 + 8193]
        refused(ValueError, "exceeds the buffer", dmabuf_dio.save, buffer, copy, buf_offset=1, length=len(content))
        with pytest.raises(FileNotFoundError):
            dmabuf_dio.save(buffer, folder / "no" / "copy")
    # A range that does not start where the memory does.
    with dmabuf_dio.load(file, kind="memfd", offset=4097, length=9000) as buffer:
        dmabuf_dio.save(buffer, copy)
        assert copy.read_bytes() == content[4097 : 4097 + 9000]


def test_load_into_changes_only_its_range(file: Path, content: bytes) -> None:
    with Buffer.alloc(1 << 20, kind="memfd") as buffer:
        assert buffer.report is None
        report = dmabuf_dio.load_into(file, buffer, buf_offset=8192, offset=4096, length=5000)
        assert report.bytes == 5000
        with memoryview(buffer) as view:
            assert bytes(view[8192:13192]) == content[4096:9096]
            assert not any(view[:8192]) and not any(view[13192:])
            refused(BufferError, "1 view lives.*test_load.py", dmabuf_dio.load_into, file, buffer, length=10)
            assert not any(view[:8192])
        refused(ValueError, "exceeds the buffer", dmabuf_dio.load_into, file, buffer)
        with pytest.raises(ValueError, match="exceeds the buffer"):
            dmabuf_dio.load_into(file, buffer, buf_offset=(1 << 20) - 5, length=6)
    with dmabuf_dio.load(file, kind="memfd") as buffer:
        refused(BufferError, "read-only", dmabuf_dio.load_into, file, buffer)


def test_buffer_over_part_of_a_memfd_stays_inside_it(file: Path, content: bytes) -> None:
    """A buffer that is a part of a memfd reaches no byte outside of it."""
    with Buffer.alloc(1 << 16, kind="memfd") as whole:
        part = Buffer.from_fd(whole.fd, data_offset=4096, data_length=100, writable=True)
        refused(ValueError, "exceeds the buffer", dmabuf_dio.load_into, file, part, length=101)
        dmabuf_dio.load_into(file, part, length=100)
        with memoryview(whole) as view, memoryview(part) as piece:
            assert piece == content[:100]
            assert bytes(view[4096:4196]) == content[:100]
            assert not any(view[:4096]) and not any(view[4196:])
    with pytest.raises(ValueError, match="neither"):
        with file.open() as opened:
            Buffer.from_fd(opened.fileno())


def test_unsealed_memfd_is_not_mapped() -> None:
    fd = os.memfd_create("unsealable")
    os.ftruncate(fd, 8192)
    buffer = Buffer.from_fd(fd)
    refused(BufferError, "MFD_ALLOW_SEALING", memoryview, buffer)
    os.close(fd)


def test_doctor_describes_backends_and_file(file: Path) -> None:
    found = dmabuf_dio.doctor(file)
    assert found["schema"] == 1
    assert {backend["backend"] for backend in found["backends"]} >= {"memfd", "buffered"}
    assert found["file"]["length"] == file.stat().st_size
    with pytest.raises(FileNotFoundError):
        dmabuf_dio.doctor("/nowhere")


INTERRUPTED = """
import os, signal, sys, threading, time
import dmabuf_dio
# A shell's background jobs ignore SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
def progress(done, total):
    if done:
        os.kill(os.getpid(), signal.SIGINT)
before = len(os.listdir("/proc/self/fd"))
try:
    dmabuf_dio.load(sys.argv[1], kind="memfd", block_size=4096, queue_depth=1, progress=progress)
except KeyboardInterrupt:
    assert len(os.listdir("/proc/self/fd")) == before
    # The kernel takes a moment to forget a thread that was joined.
    deadline = time.monotonic() + 30
    while len(os.listdir("/proc/self/task")) > 1:
        assert time.monotonic() < deadline
    print("in good order")
"""


def test_ctrl_c_interrupts_a_load(file: Path) -> None:
    assert run(INTERRUPTED, file) == "in good order\n"


def test_signal_handlers_run_while_a_load_waits(file: Path) -> None:
    ran: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: ran.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        deadline = time.monotonic() + 30
        while not ran and time.monotonic() < deadline:
            dmabuf_dio.load(file, kind="memfd").close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ran


def test_other_threads_run_during_a_load(file: Path) -> None:
    """The interpreter is not held: another thread counts while this one loads."""
    counted = during = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    with beside(count):
        for _ in range(5):
            before = counted
            dmabuf_dio.load(file, kind="memfd", block_size=4096, queue_depth=1).close()
            during += counted - before
    assert during > 1000


def test_import_maps_the_code_of_the_extension() -> None:
    """No load waits for it to come from the disk: each segment that is not written is in memory as a whole."""
    program = """
import dmabuf_dio._native as native
segments = {}
for line in open("/proc/self/smaps"):
    words = line.split()
    if "-" in words[0] and ":" not in words[0]:
        mine = words[-1] == native.__file__ and "w" not in words[1]
        name = words[0]
    elif mine and words[0] in ("Size:", "Rss:"):
        segments.setdefault(name, []).append(int(words[1]))
print(len(segments), sum(size - resident for size, resident in segments.values()))
"""
    count, missing = map(int, run(program).split())
    assert count >= 2
    # The pages behind the last of a segment's file, and those that relocations were written to.
    assert missing <= 16


@pytest.mark.parametrize("kind", ["memfd", "dmabuf"])
@pytest.mark.parametrize("length", [1 << 44, 1 << 60, (1 << 63) - 4096, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_absurd_buffer_lengths_raise_errors(length: int, kind: Literal["memfd", "dmabuf"]) -> None:
    with pytest.raises((MemoryError, OSError, ValueError)) as raised:
        Buffer.alloc(length, kind=kind)
    assert raised.value.__notes__
    if kind == "memfd" and length < 1 << 62:
        assert isinstance(raised.value, MemoryError)
