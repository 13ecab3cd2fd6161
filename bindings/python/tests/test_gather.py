# SPDX-License-Identifier: MIT OR Apache-2.0
"""Many pieces at once."""

from __future__ import annotations

import array
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import refused

import dmabuf_dio
from dmabuf_dio import Buffer, Gathering
from dmabuf_dio.types import Numbers


def test_equal_rows_are_gathered(file: Path, content: bytes) -> None:
    offsets = np.array([0, 8192, 4096, 1 << 20, 0], dtype=np.int64)
    gathered = dmabuf_dio.gather(file, offsets, 4096, kind="memfd")
    assert len(gathered) == 5
    starts, lengths = np.asarray(gathered.starts), np.asarray(gathered.lengths)
    assert starts.dtype == lengths.dtype == np.int64
    table = np.frombuffer(gathered.buffer, np.uint8)
    for offset, start, length in zip(offsets, starts, lengths, strict=True):
        assert table[start : start + length].tobytes() == content[offset : offset + length]
    assert not gathered.errors
    assert gathered.report["pieces"] == 5


def as_array(numbers: list[int]) -> Numbers:
    return array.array("q", numbers)


def as_unsigned(numbers: list[int]) -> Numbers:
    return np.array(numbers, dtype=np.uint64)


@pytest.mark.parametrize("make", [list[int], as_array, as_unsigned])
def test_pieces_of_any_length_are_gathered(file: Path, content: bytes, make: Callable[[list[int]], Numbers]) -> None:
    offsets, lengths = [7, 511, 4096, len(content) - 3], [1, 2, 8192, 3]
    gathered = dmabuf_dio.gather(file, make(offsets), make(lengths), kind="memfd")
    for number, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
        assert gathered[number] == content[offset : offset + length]
    assert gathered[-1] == content[-3:]
    with pytest.raises(IndexError):
        gathered[4]
    assert len(list(gathered)) == 4


def test_failed_piece_leaves_the_others_valid(file: Path, content: bytes) -> None:
    gathered = dmabuf_dio.gather(file, [0, len(content) + 4096], [10, 10], kind="memfd")
    assert gathered[0] == content[:10]
    with pytest.raises(EOFError, match="piece 1") as raised:
        gathered[1]
    assert raised.value.__notes__
    [(number, error)] = gathered.errors
    assert number == 1 and isinstance(error, EOFError)
    assert list(gathered.starts)[1] == -1


def test_wrong_arguments_are_refused(file: Path) -> None:
    refused(ValueError, "2 offsets and 1 lengths", dmabuf_dio.gather, file, [0, 1], [1], kind="memfd")
    refused(ValueError, "negative", dmabuf_dio.gather, file, [-1], 1, kind="memfd")
    for length in (-1, 2**64):
        refused(ValueError, "a length must be from 0", dmabuf_dio.gather, file, [0], length, kind="memfd")
    refused(TypeError, "64-bit", dmabuf_dio.gather, file, b"12345678", 1, kind="memfd")
    for lengths in ([2**63 - 1] * 3, [2**63 - 1, 2**63 - 1, 1]):
        refused(ValueError, "too long", dmabuf_dio.gather, file, [0, 1, 2], lengths, kind="memfd")
    with pytest.raises(FileNotFoundError):
        dmabuf_dio.gather(file.parent / "missing", [0], 1, kind="memfd")


def test_gatherer_can_be_used_again(file: Path, content: bytes) -> None:
    buffer = Buffer.alloc(1 << 16, kind="memfd")
    with Gathering(file, buffer, spare=(1 << 15, 1 << 15)) as gatherer:
        assert gatherer.alignment[0] >= 1
        for row in range(20):
            gathered = gatherer.read([4096 * row, 100], [0, 4096], 4096)
            assert gathered[0] == content[4096 * row : 4096 * row + 4096]
            assert gathered[1] == content[100:4196]
        gathered = gatherer.read([4096 * 19], [0], 4096)
        kept = gathered[0]
        refused(BufferError, "1 view lives", gatherer.read, [0], [0], 4096)
        assert kept == content[4096 * 19 : 4096 * 20]
        del kept, gathered
        refused(ValueError, "exceeds the buffer", gatherer.read, [0], [1 << 16], 1)
        refused(ValueError, "places", gatherer.read, [0], [], 1)
        refused(ValueError, "overlap", gatherer.read, [0, 4096], [0, 10], 4096)
    refused(ValueError, "closed", gatherer.read, [0], [0], 4096)


def test_unaligned_piece_asks_for_spare_bytes(file: Path) -> None:
    buffer = Buffer.alloc(1 << 16, kind="memfd")
    with Gathering(file, buffer) as gatherer:
        if gatherer.alignment[0] == 1:
            pytest.skip("no alignment is needed here")
        with pytest.raises(ValueError, match="piece 0") as raised:
            gatherer.read([1], [0], 100)[0]
    assert "spare=(start, length)" in raised.value.__notes__[0]


def test_gatherer_is_refused_after_a_fork(file: Path) -> None:
    buffer = Buffer.alloc(1 << 16, kind="memfd")
    gatherer = Gathering(file, buffer)
    child = os.fork()
    if child == 0:
        try:
            gatherer.read([0], [0], 4096)
        except RuntimeError as error:
            os._exit(0 if "fork" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(gatherer.read([0], [0], 4096)) == 1
    gatherer.close()
