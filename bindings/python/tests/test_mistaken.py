# SPDX-License-Identifier: MIT OR Apache-2.0
"""Files that people take for models, and models that other readers open: what the exception that they see says."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import models
import numpy as np
import pytest
import safetensors
from safetensors import SafetensorError
from helpers import refused

import dmabuf_dio

MISTAKEN = {
    b"": ("an empty file", "download the file again"),
    b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n": ("a git-lfs pointer", "git lfs pull"),
    b"<!DOCTYPE html><html>401</html>": ("a web page", "a login"),
    b"PK\x03\x04" + bytes(22) + b"\x10\0\0\0archive/data.pkl" + b"\xff" * 99: ("PyTorch checkpoint", "weights_only=True"),
    b"tjgg" + bytes([1, 0, 0, 0]) * 8: ("GGJT", "download the model as GGUF"),
    bytes(4096): ("a file of zeros", "download the file again"),
}


@pytest.mark.parametrize("content", MISTAKEN)
def test_exception_names_the_mistaken_format(content: bytes, folder: Path) -> None:
    what, remedy = MISTAKEN[content]
    path = folder / "mistaken.safetensors"
    path.write_bytes(content)
    raised = refused(ValueError, f"not a model but .*{what}", dmabuf_dio.open, path)
    assert remedy in raised.__notes__[0]
    # The drop-in raises the same exception as safetensors, with the remedy.
    with pytest.raises(SafetensorError):
        safetensors.safe_open(path, "np")
    with pytest.raises(SafetensorError, match=f"deserializing header.*not a model but .*{what}") as theirs:
        dmabuf_dio.safe_open(path, "np")
    assert remedy in theirs.value.__notes__[0]


def test_damaged_files_have_their_remedy(folder: Path) -> None:
    path = models.safetensors(folder / "damaged.safetensors", {"a": ("U8", [9], bytes(9))})
    path.write_bytes(path.read_bytes()[:-1])
    raised = refused(SafetensorError, "the file has", dmabuf_dio.safe_open, path, "np")
    assert "download the file again" in raised.__notes__[0]


@pytest.mark.parametrize("order", "<>")
def test_a_gguf_file_is_no_safetensors_file(order: str, folder: Path) -> None:
    """Programs find out by the error which format a file has."""
    path = models.gguf(folder / "probed.gguf", {"a": (0, [4], bytes(16))}, {}, order)
    with pytest.raises(SafetensorError):
        safetensors.safe_open(path, "np")
    raised = refused(SafetensorError, "a GGUF file", dmabuf_dio.safe_open, path, "np")
    assert "dmabuf_dio.open()" in raised.__notes__[0]
    assert dmabuf_dio.open(path).format == "GGUF"


def test_text_that_is_not_utf8_is_bytes(folder: Path) -> None:
    data = random.Random(5).randbytes(16)
    values: dict[str, object] = {"name": b"gr\xf6sse", "text": "größe", "tokens": ["<s>", b"\x80", "ß", b"\xc3"]}
    path = models.gguf(folder / "tokens.gguf", {"a": (0, [4], data)}, values)
    opened = dmabuf_dio.open(path)
    assert opened.metadata == values
    with opened.load(kind="memfd") as loaded:
        assert bytes(loaded["a"]) == data


def test_big_endian_tensors_are_read(folder: Path) -> None:
    numbers = np.arange(-6, 6, dtype=">f4").reshape(3, 4)
    halves = np.arange(5, dtype=">i2")
    blocks = random.Random(5).randbytes(18 * 2)
    tensors = {
        "numbers": (0, [3, 4], numbers.tobytes()),
        "halves": (25, [5], halves.tobytes()),
        "bytes": (24, [3], b"abc"),
        "blocks": (2, [1, 64], blocks),
    }
    path = models.gguf(folder / "big.gguf", tensors, {"name": "x", "n": 7, "f": 0.5, "list": [1, -2]}, ">")
    opened = dmabuf_dio.open(path)
    assert opened.metadata == {"name": "x", "n": 7, "f": 0.5, "list": [1, -2]}
    assert {opened[name].byte_order for name in opened} == {"big"}
    with opened.load(kind="memfd") as loaded:
        assert loaded["numbers"].byte_order == "big"
        found = loaded["numbers"].numpy()
        assert found.dtype.str == ">f4" and (found == numbers).all()
        assert (loaded["halves"].numpy() == halves).all()
        assert bytes(loaded["halves"]) == halves.tobytes()
        assert loaded["bytes"].numpy().tobytes() == b"abc"
        # Blocks are bytes, as they are in the file.
        assert loaded["blocks"].numpy().tobytes() == blocks
        with pytest.raises(BufferError, match="big-endian"):
            loaded["numbers"].__dlpack__(max_version=(1, 0))
        del found
    # Types of one byte have no byte order.
    with opened.load(only=["bytes"], kind="private") as loaded:
        assert np.from_dlpack(loaded["bytes"]).tobytes() == b"abc"
    little = dmabuf_dio.open(models.gguf(folder / "little.gguf", tensors, {}))
    assert little["numbers"].byte_order == "little"


def test_swapped_reverses_bytes_of_each_element() -> None:
    from dmabuf_dio._layout import swapped

    data = bytes(range(24))
    for size in (1, 2, 4, 8):
        assert swapped(data, size) == np.frombuffer(data, f">u{size}").astype(f"<u{size}").tobytes()


def test_shards_without_index_load_as_one_model(folder: Path) -> None:
    shards = folder / "globbed"
    shards.mkdir()
    for number in (1, 2):
        models.safetensors(shards / f"model-0000{number}-of-00002.safetensors", {f"t{number}": ("U8", [3], b"ab%d" % number)})
    with dmabuf_dio.load_tensors(shards, kind="memfd") as loaded:
        assert {name: bytes(loaded[name]) for name in loaded} == {"t1": b"ab1", "t2": b"ab2"}
    (shards / "model-00001-of-00002.safetensors").unlink()
    raised = refused(FileNotFoundError, "missing: model-00001-of-00002.safetensors", dmabuf_dio.open, shards)
    assert (raised.errno, raised.filename) == (errno.ENOENT, str(shards))
    assert "download" in raised.__notes__[0]


def test_stale_index_error_names_the_missing_file(folder: Path) -> None:
    stale = folder / "stale"
    stale.mkdir()
    index = models.index(stale, {"model-00001-of-00001.safetensors": {"a": ("U8", [1], b"x")}})
    (stale / "model-00001-of-00001.safetensors").rename(stale / "model.safetensors")
    raised = refused(FileNotFoundError, "missing: model-00001-of-00001.safetensors", dmabuf_dio.open, stale)
    assert raised.filename == str(index)
    assert "model.safetensors beside it" in raised.__notes__[0]
