# SPDX-License-Identifier: MIT OR Apache-2.0
"""Threads that meet at one object. With the GIL some of the moments are rare: bindings/python/test-free-threaded."""

from __future__ import annotations

import sys
import threading
import time
import types
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest
from helpers import beside, together

import dmabuf_dio
from dmabuf_dio import Buffer

SMALL = 20_000


@pytest.fixture(autouse=True)
def switches() -> Iterator[None]:
    """Threads with the GIL take turns often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_reading_attributes_does_not_block_close() -> None:
    """A buffer without views is closed, whatever other threads ask it meanwhile."""
    shared = [Buffer.alloc(4096, kind="memfd")]

    def ask() -> None:
        buffer = shared[0]
        try:
            for _ in range(50):
                assert buffer.fd >= 0 and buffer.writable and buffer.data_offset == 0
        except ValueError as error:
            assert "closed" in str(error)

    with beside(ask, ask):
        for _ in range(10_000):
            shared[0] = buffer = Buffer.alloc(4096, kind="memfd")
            buffer.close()


def test_view_racing_close_fails_or_prevents_it() -> None:
    """A view that begins while the buffer is closed: either of them fails. Two seconds of that."""
    meet = threading.Barrier(2)
    end = time.monotonic() + 2
    buffer = Buffer.alloc(4096, kind="memfd")
    got: list[object] = [None]
    over = False

    def take() -> None:
        while True:
            meet.wait()
            if over:
                return
            try:
                got[0] = np.from_dlpack(buffer) if rounds % 2 else memoryview(buffer)
            except Exception as error:
                got[0] = error
            meet.wait()

    taker = threading.Thread(target=take)
    taker.start()
    rounds = 0
    wrong: list[object] = []
    while time.monotonic() < end:
        buffer, rounds = Buffer.alloc(4096, kind="memfd"), rounds + 1
        meet.wait()
        for _ in range(rounds % 200):
            pass
        closed: object = None
        try:
            buffer.close()
        except BufferError as error:
            closed = error
        meet.wait()
        refused = isinstance(got[0], ValueError) and "closed" in str(got[0])
        if refused != (closed is None) or (closed is not None and "1 view lives" not in str(closed)):
            wrong.append((rounds, got[0], closed))
        got[0] = None
    over = True
    meet.wait()
    taker.join()
    assert not wrong, (len(wrong), rounds, wrong[:3])


def test_load_is_refused_under_an_array_without_a_view(folder: Path) -> None:
    """numpy.ndarray() keeps no view. Each load changes every byte: an array that stands sees none of it."""
    files = [folder / f"filled-with-{value}" for value in (1, 2)]
    for value, path in enumerate(files, 1):
        path.write_bytes(bytes([value]) * SMALL)
    buffer = Buffer.alloc(SMALL, kind="memfd")
    dmabuf_dio.load_into(files[0], buffer)
    loads = looks = 0

    def look() -> None:
        nonlocal looks
        try:
            array = np.ndarray((SMALL,), np.uint8, memoryview(buffer))
        except BufferError:
            return
        before = array[0]
        assert not (array != before).any() and array[0] == before
        looks += 1
        # While an array of either thread stands, no load begins.
        del array
        time.sleep(0.001)

    with beside(look, look):
        while loads < 200:
            try:
                dmabuf_dio.load_into(files[loads % 2], buffer)
                loads += 1
            except BufferError:
                pass
    assert looks


def test_two_threads_put_a_block_once(folder: Path) -> None:
    """Two threads put the same block: one is told that it is none any more, and the file has it once."""
    path, rounds = folder / "put-twice", 200
    with dmabuf_dio.write_blocks(path, block_size=4096, blocks=3) as out:
        for number in range(rounds):
            block = next(out)
            with memoryview(block) as view:
                view[:] = number.to_bytes(4, "little") * 1024
            results = together(partial(out.put, block), partial(out.put, block))
            errors = [result for result in results if result is not None]
            assert len(errors) == 1, (number, results)
            assert isinstance(errors[0], BufferError | ValueError), errors
            del block, results
        assert out.close() == rounds * 4096
    assert path.read_bytes() == b"".join(number.to_bytes(4, "little") * 1024 for number in range(rounds))


def test_two_threads_take_each_block_once(folder: Path) -> None:
    """Each block once, whole, in order for each thread."""
    path, blocks = folder / "taken", 400
    path.write_bytes(b"".join(number.to_bytes(4, "little") * 1024 for number in range(blocks)))
    taken: list[list[int]] = [[], []]
    with dmabuf_dio.read_blocks(path, block_size=4096, blocks=8) as reader:

        def take(mine: list[int]) -> None:
            for block in reader:
                found = np.frombuffer(block, "<u4")
                assert (found == found[0]).all()
                mine.append(int(found[0]))

        assert together(lambda: take(taken[0]), lambda: take(taken[1])) == [None, None]
    assert sorted(taken[0] + taken[1]) == list(range(blocks))
    assert all(mine == sorted(mine) for mine in taken)


def test_slices_may_end_while_others_load(folder: Path) -> None:
    names = [f"{number:03}" for number in range(200)]
    path = folder / "slices.safetensors"
    models.safetensors(path, {name: ("U8", [4], name.encode() + b"!") for name in names})
    file = [dmabuf_dio.safe_open(path, "np")]

    def come_and_go() -> None:
        try:
            for name in names:
                file[0].get_slice(name)
        except Exception as error:
            if "File is closed" not in str(error):
                raise

    with beside(come_and_go, come_and_go):
        for number in range(300):
            name = names[number % len(names)]
            with dmabuf_dio.safe_open(path, "np") as file[0]:
                kept = [file[0].get_slice(other) for other in names]
                assert kept[number % len(names)][:3].tobytes() == name.encode()


def test_concurrent_install_waits_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """install() in a thread while another is at it: the originals are known once, and come back."""
    theirs: Any = types.ModuleType("safetensors")

    def original(filename: str, framework: str, device: str, *, backend: str) -> str:
        return f"{filename} by {framework}"

    theirs.safe_open = original
    monkeypatch.setitem(sys.modules, "safetensors", theirs)
    second = threading.Thread(target=dmabuf_dio.install)

    class Meeting(types.ModuleType):
        """In the middle of the first install()."""

        @property
        def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
            if not second.ident:
                second.start()
                second.join(0.5)
            return {}

    monkeypatch.setitem(sys.modules, "meeting", Meeting("meeting"))
    dmabuf_dio.install()
    second.join()
    try:
        assert theirs.safe_open is not original
        # Files for other frameworks are left to it.
        found: Any = theirs.safe_open
        assert found("name", "tf") == "name by tf"
    finally:
        dmabuf_dio.uninstall()
    assert theirs.safe_open is original
