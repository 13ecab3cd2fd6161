# SPDX-License-Identifier: MIT OR Apache-2.0
"""Streams of blocks: files here, devices where there are any (a guest with kernel/sim)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from helpers import refused

import dmabuf_dio
from dmabuf_dio import Buffer

SIZE = 1 << 18


def test_a_file_is_read_through_a_few_blocks(file: Path, content: bytes) -> None:
    with dmabuf_dio.read_blocks(file, block_size=SIZE) as blocks:
        assert (blocks.frame, blocks.block_size) == (1, SIZE)
        read = [bytes(block) for block in blocks]
    assert b"".join(read) == content
    assert {len(block) for block in read[:-1]} == {SIZE}
    refused(ValueError, "closed", next, blocks)


def test_a_block_in_use_is_not_filled_again(file: Path, content: bytes) -> None:
    # Three that stay, and one for the loop to have while another is filled.
    with dmabuf_dio.read_blocks(file, block_size=SIZE, blocks=5) as blocks:
        first = np.frombuffer(next(blocks), np.uint8)
        second = memoryview(next(blocks))
        third = next(blocks)
        rest = b"".join(bytes(block) for block in blocks)
        assert first.tobytes() == content[:SIZE]
        assert second == content[SIZE : 2 * SIZE]
        assert bytes(third) == content[2 * SIZE : 3 * SIZE]
        assert rest == content[3 * SIZE :]
    # They outlive the stream.
    assert first.tobytes() == content[:SIZE]
    with dmabuf_dio.read_blocks(file, block_size=SIZE, blocks=2) as blocks:
        kept = [next(blocks), next(blocks)]
        refused(BufferError, "all 2 blocks are in use", next, blocks)
        view = memoryview(kept[1])
        refused(BufferError, "1 view lives.*test_blocks.py", next, blocks)
        kept.clear()
        view.release()
        assert bytes(next(blocks)) == content[2 * SIZE : 3 * SIZE]


def test_a_file_is_written_through_a_few_blocks(folder: Path, content: bytes) -> None:
    path = folder / "written"
    with dmabuf_dio.write_blocks(path, block_size=SIZE, blocks=3) as blocks:
        left = content
        for block in blocks:
            part, left = left[:SIZE], left[SIZE:]
            with memoryview(block) as view:
                view[: len(part)] = part
                refused(BufferError, "1 view lives", blocks.put, block)
            blocks.put(block, len(part))
            assert block.closed
            if not left:
                break
        refused(BufferError, "not a block of the stream", blocks.put, Buffer.alloc(SIZE, kind="memfd"))
        # A block that was not put is free again.
        next(blocks)
        assert blocks.close() == len(content)
    assert path.read_bytes() == content


def test_blocks_hold_whole_frames(file: Path, folder: Path) -> None:
    refused(ValueError, "not a whole number of frames", dmabuf_dio.read_blocks, file, frame=4096)
    refused(ValueError, "multiple of the frame", dmabuf_dio.read_blocks, file, frame=3, block_size=4096)
    with dmabuf_dio.write_blocks(folder / "frames", frame=4, block_size=4096) as blocks:
        refused(ValueError, "frames of 4", blocks.put, next(blocks), 6)
    with pytest.raises(FileNotFoundError):
        dmabuf_dio.read_blocks(folder / "missing")
    refused(ValueError, "from 1 to 4096", dmabuf_dio.read_blocks, file, blocks=0)
    refused(ValueError, "kind", dmabuf_dio.read_blocks, file, kind="private")
    refused(ValueError, '"x"', dmabuf_dio.read_blocks, file, kind="x")


def test_capture_of_a_device_gives_blocks() -> None:
    names = [
        (folder / "name").read_text().strip()
        for folder in Path("/sys/bus/iio/devices").glob("iio:device*")
    ]
    refused(OSError, "no IIO device", dmabuf_dio.capture, "no such device")
    if "stream-adc" not in names:
        assert "iio" not in os.environ.get("DMABUF_DIO_REQUIRE", ""), names
        pytest.skip("needs the IIO devices of kernel/sim")
    refused(ValueError, 'no channel "x"', dmabuf_dio.capture, "stream-adc", channels=["x"])
    # The order of a frame cannot be chosen.
    with pytest.raises(ValueError, match="as they are in a frame.*in_voltage0, in_voltage1"):
        dmabuf_dio.capture("stream-adc", channels=["in_voltage1", "in_voltage0"])
    if "stream-twin" in names:
        refused(ValueError, "2 devices are called.*iio:device", dmabuf_dio.capture, "stream-twin")
    with dmabuf_dio.capture("stream-adc", rate=100_000, length=1 << 20, block_size=1 << 16) as blocks:
        samples = [np.frombuffer(bytes(block), "<u8") for block in blocks]
        # The simulated device counts frames.
        assert np.concatenate(samples).tolist() == list(range((1 << 20) // 8))
        assert blocks.frame == 8
        assert blocks.channels and blocks.how
        assert not blocks.lost_frames
    with dmabuf_dio.replay("stream-dac", rate=1_000_000, block_size=1 << 16) as out:
        for array in samples:
            block = next(out)
            with memoryview(block) as view:
                view[: array.nbytes] = array.tobytes()
            out.put(block, array.nbytes)
        assert out.close() == sum(array.nbytes for array in samples)
