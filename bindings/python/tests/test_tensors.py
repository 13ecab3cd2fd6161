# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tensors of safetensors and GGUF files."""

from __future__ import annotations

import errno
import gc
import pickle
import random
from pathlib import Path

import models
import numpy as np
import pytest
from safetensors import SafetensorError
from helpers import refused

import dmabuf_dio
from dmabuf_dio.types import Kind

RANDOM = random.Random(3)

# Types, shapes, and the bytes of an element (or the elements of a byte).
PLAIN = {
    "F32": 4,
    "F64": 8,
    "I64": 8,
    "U16": 2,
    "F16": 2,
    "I8": 1,
    "U8": 1,
    "C64": 8,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
}


@pytest.fixture(scope="session")
def tensors() -> dict[str, models.Tensor]:
    found: dict[str, models.Tensor] = {}
    for dtype, size in PLAIN.items():
        found[f"layer.{dtype}"] = (dtype, [7, 24], RANDOM.randbytes(7 * 24 * size))
    found["large"] = ("F32", [1000, 700], RANDOM.randbytes(1000 * 700 * 4))
    found["scalar"] = ("F64", [], RANDOM.randbytes(8))
    found["empty"] = ("I32", [0, 3], b"")
    found["fp4"] = ("F4", [3, 8], RANDOM.randbytes(12))
    return found


@pytest.fixture(scope="session")
def model(folder: Path, tensors: dict[str, models.Tensor]) -> Path:
    return models.safetensors(folder / "model.safetensors", tensors, {"format": "pt", "ä": "ö"})


@pytest.mark.parametrize("kind", ["memfd", "private", "any"])
def test_every_tensor_has_its_bytes(model: Path, tensors: dict[str, models.Tensor], kind: Kind) -> None:
    opened = dmabuf_dio.open(model)
    assert (opened.format, len(opened)) == ("safetensors", len(tensors))
    assert opened.metadata == {"format": "pt", "ä": "ö"}
    assert opened.files == [str(model)]
    with opened.load(kind=kind) as loaded:
        assert set(loaded) == set(loaded.keys()) == set(tensors)
        for name, (dtype, shape, data) in tensors.items():
            assert name in opened and name in loaded
            info, tensor = opened[name], loaded[name]
            assert (info.name, info.dtype, list(info.shape)) == (name, dtype, shape)
            assert (tensor.name, tensor.dtype, list(tensor.shape)) == (name, dtype, shape)
            assert tensor.nbytes == info.nbytes == len(data)
            with memoryview(tensor) as view:
                assert view == data
                assert view.readonly
            assert model.read_bytes()[info.offset : info.offset + info.nbytes] == data
            again = pickle.loads(pickle.dumps(info))
            for fact in ("name", "dtype", "shape", "nbytes", "block", "byte_order", "file", "offset"):
                assert getattr(again, fact) == getattr(info, fact)
            assert repr(again) == repr(info)
        assert [name for name, _ in loaded.items()] == loaded.keys()


def test_only_selected_tensors_are_read(model: Path, tensors: dict[str, models.Tensor]) -> None:
    with dmabuf_dio.load_tensors(model, only=["scalar", "layer.I8"], kind="memfd", gap=0) as loaded:
        assert loaded.keys() == ["layer.I8", "scalar"]
        for name in loaded:
            assert bytes(loaded[name]) == tensors[name][2]
        read = sum(buffer.report.bytes for buffer in loaded.buffers if buffer.report)
        assert read < 100_000 < len(tensors["large"][2])
        with pytest.raises(KeyError, match="large"):
            loaded["large"]
    refused(KeyError, "nothing", dmabuf_dio.load_tensors, model, only=["nothing"], kind="memfd")


def test_tensors_become_numpy_arrays(model: Path, tensors: dict[str, models.Tensor]) -> None:
    loaded = dmabuf_dio.load_tensors(model, kind="private")
    for name in ("large", "layer.F16", "layer.I64", "layer.C64", "scalar", "empty"):
        array = loaded[name].numpy()
        assert list(array.shape) == tensors[name][1]
        assert array.tobytes() == tensors[name][2]
        assert array.size == 0 or not array.flags.writeable
    assert loaded["fp4"].numpy().shape == (3, 4)
    array = np.from_dlpack(loaded["large"])
    assert array.shape == (1000, 700) and array.dtype == np.float32
    assert array.tobytes() == tensors["large"][2]
    refused(BufferError, 'tensor "large" for DLPack taken at', loaded.close)
    view = loaded["layer.U8"].numpy()
    with pytest.raises(BufferError, match='2 views live:.*tensor "layer.U8" taken at .*test_tensors.py'):
        loaded.buffers[0].close()
    with pytest.raises(BufferError, match="no type F4"):
        loaded["fp4"].__dlpack__(max_version=(1, 0))
    del loaded
    gc.collect()
    assert array.tobytes() == tensors["large"][2]
    assert view.tobytes() == tensors["layer.U8"][2]


def test_unaligned_tensor_is_copied_by_numpy(folder: Path) -> None:
    data = RANDOM.randbytes(400)
    path = models.safetensors(folder / "odd.safetensors", {"x": ("I8", [1], b"x"), "y": ("F32", [100], data)})
    tensor = dmabuf_dio.load_tensors(path, kind="private")["y"]
    assert tensor.numpy().tobytes() == data
    refused(BufferError, "not aligned", tensor.__dlpack__, max_version=(1, 0))


def test_sharded_model_loads_as_one(folder: Path, tensors: dict[str, models.Tensor]) -> None:
    shards = folder / "shards"
    shards.mkdir()
    names = list(tensors)
    path = models.index(
        shards,
        {
            "model-1.safetensors": {name: tensors[name] for name in names[:6]},
            "model-2.safetensors": {name: tensors[name] for name in names[6:]},
        },
    )
    for source in (shards, path):
        opened = dmabuf_dio.open(source)
        assert len(opened.files) == 2
        with opened.load(kind="memfd") as loaded:
            for name in names:
                assert bytes(loaded[name]) == tensors[name][2]
            assert len(loaded.buffers) == 2


def test_gguf_model_loads_with_metadata(folder: Path) -> None:
    blocks, plain = RANDOM.randbytes(4 * 18 * 3), RANDOM.randbytes(5 * 64 * 4)
    path = models.gguf(
        folder / "model.gguf",
        {"blk.0.q": (2, [3, 128], blocks), "plain": (0, [5, 64], plain)},
        {"general.name": "x", "n": 7, "on": True, "f": 0.5, "list": [1, -2, 3]},
    )
    opened = dmabuf_dio.open(path)
    assert opened.format == "GGUF"
    assert opened.metadata == {"general.name": "x", "n": 7, "on": True, "f": 0.5, "list": [1, -2, 3]}
    with opened.load(kind="memfd") as loaded:
        quantised = loaded["blk.0.q"]
        assert (quantised.dtype, quantised.shape, quantised.block) == ("Q4_0", (3, 128), (32, 18))
        assert quantised.numpy().tobytes() == blocks
        assert quantised.numpy().shape == (3, 72)
        assert loaded["plain"].numpy().tobytes() == plain
        assert loaded["plain"].numpy().dtype == np.float32


def test_damaged_files_raise_errors(folder: Path, model: Path) -> None:
    cut = folder / "cut.safetensors"
    cut.write_bytes(model.read_bytes()[:-1])
    raised = refused(ValueError, "the file has", dmabuf_dio.open, cut)
    assert "download" in raised.__notes__[0]
    cut.write_bytes(b"\xff" * 4096)
    refused(ValueError, "another format", dmabuf_dio.open, cut)
    with pytest.raises(FileNotFoundError) as missing:
        dmabuf_dio.open(folder / "missing")
    assert (missing.value.errno, missing.value.filename) == (errno.ENOENT, str(folder / "missing"))
    bare = folder / "bare"
    bare.mkdir()
    refused(FileNotFoundError, "no .safetensors", dmabuf_dio.open, bare)


def test_tensor_load_reports_progress_and_cancels(model: Path) -> None:
    told: list[tuple[int, int]] = []
    dmabuf_dio.load_tensors(model, kind="memfd", progress=lambda done, total: told.append((done, total))).close()
    assert told and told[-1][0] == told[-1][1] > 2_800_000

    def stop(done: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        dmabuf_dio.load_tensors(model, kind="memfd", progress=stop)
    with pytest.raises(OSError) as raised:
        token = dmabuf_dio.CancelToken()
        token.cancel()
        for _ in range(1000):
            dmabuf_dio.load_tensors(model, kind="memfd", cancel=token, block_size=4096, queue_depth=1)
    assert (raised.value.errno, raised.value.filename) == (errno.ECANCELED, str(model))


def test_tensor_offset_lies_in_the_descriptor(model: Path, tensors: dict[str, models.Tensor]) -> None:
    """A tensor has a place in the buffer's descriptor, and is no view of it."""
    import os

    loaded = dmabuf_dio.load_tensors(model, kind="memfd")
    tensor = loaded["large"]
    buffer = tensor.buffer
    assert buffer is not None
    assert os.pread(buffer.fd, tensor.nbytes, tensor.offset) == tensors["large"][2]
    buffer.close()
    refused(ValueError, "closed", memoryview, tensor)


@pytest.mark.parametrize("dtype,shape,size", [("F4", [8, 1], 4), ("F4", [2, 3], 3), ("F6_E2M3", [8, 2], 12), ("F4", [0, 1], 0)])
def test_packed_rows_of_partial_bytes_are_refused(dtype: str, shape: list[int], size: int, folder: Path) -> None:
    data = RANDOM.randbytes(size)
    path = models.safetensors(folder / "packed.safetensors", {"x": (dtype, shape, data)})
    tensor = dmabuf_dio.load_tensors(path, kind="private")["x"]
    with pytest.raises(ValueError, match=r"last dimension be divisible by [24]: got \["):
        tensor.numpy()
    assert bytes(tensor) == data
    with dmabuf_dio.safe_open(path, "np") as file:
        piece = file.get_slice("x")
        for index in (slice(None), ...):
            with pytest.raises(SafetensorError, match="last dimension be divisible"):
                piece[index]
        refused(SafetensorError, "last dimension be divisible", file.get_tensor, "x")
        refused(SafetensorError, "last dimension be divisible", file.get_tensors)


def test_packed_types_are_sliced_by_rows(folder: Path) -> None:
    """Elements share bytes: rows can be sliced, other slices are refused."""
    data = RANDOM.randbytes(12)
    path = models.safetensors(folder / "fp4.safetensors", {"x": ("F4", [2, 3, 4], data)})
    whole = np.frombuffer(data, np.uint8).reshape(2, 3, 2)
    with dmabuf_dio.safe_open(path, "np") as file:
        piece = file.get_slice("x")
        assert (piece[:] == whole).all() and (piece[1:] == whole[1:]).all() and (piece[1, 2] == whole[1, 2]).all()
        assert (piece[0, ..., :] == whole[0]).all() and (piece[..., 0:4] == whole).all()
        for index in ((..., 1), (..., slice(0, 2)), (0, 1, slice(2, None)), (0, 1, 1, ...)):
            with pytest.raises(SafetensorError, match="share bytes"):
                piece[index]
