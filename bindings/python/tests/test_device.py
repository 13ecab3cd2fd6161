# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic
"""Tensors and buffers on a device, for which a library stands in: every byte, and nothing is left."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import models
import pytest
from helpers import drop_cache, refused
from stand_in import StandIn

import dmabuf_dio
from dmabuf_dio import _device

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in needs a C compiler")

# Their bytes, and the code and the letter of DLPack's and NumPy's type
DTYPES = {
    "F64": (8, 2, "f"), "F32": (4, 2, "f"), "F16": (2, 2, "f"), "BF16": (2, 4, ""), "I64": (8, 0, "i"),
    "I32": (4, 0, "i"), "I16": (2, 0, "i"), "I8": (1, 0, "i"), "U8": (1, 1, "u"), "BOOL": (1, 6, "b"),
    "C64": (8, 5, "c"), "U16": (2, 1, "u"), "U32": (4, 1, "u"), "U64": (8, 1, "u"), "F8_E4M3": (1, 10, ""),
    "F8_E5M2": (1, 12, ""), "F8_E8M0": (1, 14, ""),
}  # fmt: skip


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[StandIn]:
    """A driver in place of the vendors', which has to be clean after each test."""
    stand_in = StandIn(tmp_path)
    with mock.patch.object(_device, "library", stand_in.path):
        yield stand_in
    gc.collect()
    stand_in.assert_clean()


@pytest.fixture(scope="module")
def tensors() -> dict[str, models.Tensor]:
    rng = random.Random(11)
    found = {dtype: (dtype, [4, 4], rng.randbytes(16 * size)) for dtype, (size, _, _) in DTYPES.items()}
    found["large"] = ("F32", [1000, 1001], rng.randbytes(4004000))
    found["empty"] = ("F32", [0, 4], b"")
    found["packed"] = ("F4", [4, 8], rng.randbytes(16))
    found |= {f"many.{number}": ("BF16", [50, 100], rng.randbytes(10000)) for number in range(300)}
    found["scalar"] = ("F64", [], rng.randbytes(8))
    found["after scalar"] = ("F32", [2, 2], rng.randbytes(16))
    found["odd"] = ("U8", [3], rng.randbytes(3))
    found["after odd"] = ("F32", [2, 2], rng.randbytes(16))
    return found


@pytest.fixture(scope="module")
def model(folder: Path, tensors: dict[str, models.Tensor]) -> Path:
    return models.safetensors(folder / "device.safetensors", tensors, pad=16)


def content(tensor: dmabuf_dio.DeviceTensor) -> bytes:
    """The bytes of a tensor: the stand-in's memory is the host's."""
    return ctypes.string_at(tensor.data_ptr, tensor.nbytes) if tensor.nbytes else b""


@pytest.mark.parametrize(("device", "kind"), [("cuda:1", (2, 1)), ("hip", (10, 0)), (1, (2, 1))])
def test_every_tensor_arrives(
    driver: StandIn, model: Path, tensors: dict[str, models.Tensor], device: object, kind: tuple[int, int]
) -> None:
    driver.setup(delay=2000)
    drop_cache(model)
    seen = []
    for name, tensor in dmabuf_dio.iter_tensors(model, window=4 << 20, device=device):
        dtype, shape, expected = tensors[name]
        assert (tensor.name, tensor.dtype, tensor.shape, tensor.nbytes) == (name, dtype, tuple(shape), len(expected))
        assert content(tensor) == expected, name
        assert tensor.__dlpack_device__() == kind and not tensor.mapped
        assert tensor.device == ("hip:0" if device == "hip" else "cuda:1")
        seen.append(name)
        # One is used, one is read; an allocation of a large one may begin before the last goes.
        assert driver.counters().allocations <= 3
    assert seen == list(tensors)
    assert driver.counters().copied == sum(len(data) for _, _, data in tensors.values())


def test_tensors_keep_their_memory(driver: StandIn, model: Path, tensors: dict[str, models.Tensor]) -> None:
    kept = dict(dmabuf_dio.iter_tensors(model, device="cuda"))
    # The ring goes with what has used it.
    assert driver.counters().pinned == 0
    last = kept["many.7"]
    kept.clear()
    assert driver.counters().allocations == 1 and content(last) == tensors["many.7"][2]


def test_names_order_and_files(driver: StandIn, folder: Path) -> None:
    rng = random.Random(3)
    shards: dict[str, dict[str, models.Tensor]] = {
        f"{number}.safetensors": {
            f"{number}.{name}": ("U8", [30000], rng.randbytes(30000)) for name in "abc"
        }
        for number in range(3)
    }
    path = models.index(folder, shards)
    every = {name: tensor for shard in shards.values() for name, tensor in shard.items()}
    wanted = ["2.c", "0.b", "1.a", "0.a"]
    given = dmabuf_dio.iter_tensors(path, only=wanted, order="given", device="cuda")
    found = [(name, content(tensor)) for name, tensor in given]
    assert found == [(name, every[name][2]) for name in wanted]
    found = [(name, content(tensor)) for name, tensor in dmabuf_dio.iter_tensors(path, device="cuda")]
    assert found == [(name, every[name][2]) for name in every]


def test_gguf(driver: StandIn, folder: Path) -> None:
    rng = random.Random(5)
    quantised, plain = rng.randbytes(144 * 3), rng.randbytes(24)
    path = models.gguf(folder / "device.gguf", {"q": (12, [3, 256], quantised), "p": (0, [2, 3], plain)}, {})
    found = dict(dmabuf_dio.iter_tensors(path, device="cuda"))
    assert (content(found["q"]), content(found["p"])) == (quantised, plain)
    error = refused(BufferError, "no type Q4_K", found["q"].__dlpack__, max_version=(1, 0))
    assert "bytes()" in str(error)
    assert found["q"].bytes().shape == (432,) and content(found["q"].bytes()) == quantised


def test_blocks_of_quantised_tensors_are_not_copied(driver: StandIn, folder: Path) -> None:
    driver.integrate()
    quantised, plain = random.Random(6).randbytes(144 * 3), bytes(range(24))
    path = models.gguf(folder / "shared.gguf", {"q": (12, [3, 256], quantised), "p": (0, [2, 3], plain)}, {})
    found = dict(dmabuf_dio.iter_tensors(path, device="cuda"))
    assert found["q"].mapped and found["p"].mapped
    assert (content(found["q"]), content(found["p"])) == (quantised, plain)


def test_parts_of_ranks_are_those_of_the_host(driver: StandIn, folder: Path) -> None:
    rng = random.Random(9)
    tensors: dict[str, models.Tensor] = {
        "rows": ("U8", [64, 5000], rng.randbytes(320000)),
        "columns": ("U8", [64, 40000], rng.randbytes(2560000)),
        "whole": ("U8", [100], rng.randbytes(100)),
    }
    path = models.safetensors(folder / "ranks.safetensors", tensors)
    split = {"rows": "rows", "columns": "columns"}
    for rank in range(2):
        shard = (rank, 2)
        host = {name: bytes(tensor) for name, tensor in dmabuf_dio.iter_tensors(path, shard=shard, split=split)}
        found = dmabuf_dio.iter_tensors(path, shard=shard, split=split, device="cuda")
        assert {name: content(tensor) for name, tensor in found} == host


def test_memory_that_is_the_hosts_is_not_copied(
    driver: StandIn, model: Path, tensors: dict[str, models.Tensor]
) -> None:
    driver.integrate()
    found = dict(dmabuf_dio.iter_tensors(model, device="cuda", window=1 << 30))
    assert {name: content(tensor) for name, tensor in found.items()} == {name: data for name, (_, _, data) in tensors.items()}
    # Kernels read 16 bytes at once: a tensor elsewhere than at a multiple is not where the disk has put it, nor are its
    # neighbours.
    assert not any(tensor.mapped for tensor in found.values())
    found.clear()
    for name in ("after scalar", "after odd"):
        assert not dict(dmabuf_dio.iter_tensors(model, only=[name], device="cuda"))[name].mapped
    only = [name for name in tensors if name not in ("after scalar", "odd", "after odd")]
    before = driver.counters()
    found = dict(dmabuf_dio.iter_tensors(model, only=only, device="cuda", window=1 << 30))
    assert all(tensor.mapped for tensor in found.values() if tensor.nbytes)
    assert all(content(found[name]) == tensors[name][2] for name in only)
    after = driver.counters()
    assert (after.copies, after.allocations, after.pinned) == (before.copies, 0, 1)


def test_memory_of_the_host_that_cannot_be_pinned_is_copied(
    driver: StandIn, model: Path, tensors: dict[str, models.Tensor]
) -> None:
    driver.integrate()
    driver.setup(call="cuMemHostGetDevicePointer", times=1, status=801)
    for name, tensor in dmabuf_dio.iter_tensors(model, only=[*DTYPES, "large"], device="cuda"):
        assert not tensor.mapped and content(tensor) == tensors[name][2]


@pytest.mark.parametrize("kind", ["private", "memfd", "file"])
@pytest.mark.parametrize("integrated", [False, True])
def test_buffer_to_device(driver: StandIn, file: Path, content: bytes, kind: Any, integrated: bool) -> None:
    if integrated:
        driver.integrate()
    buffer = dmabuf_dio.load(file, kind=kind)
    tensor = buffer.to_device("cuda:0")
    assert (tensor.dtype, tensor.shape, tensor.mapped) == ("U8", (len(content),), integrated)
    assert ctypes.string_at(tensor.data_ptr, tensor.nbytes) == content
    assert tensor.__cuda_array_interface__["data"] == (tensor.data_ptr, integrated)
    if integrated:
        error = refused(BufferError, "in use: 1 view lives: a tensor on cuda:0", buffer.close)
        assert "test_device.py" in str(error)
        refused(BufferError, "read-only", tensor.__dlpack__)
        # A page is registered once; what cannot be is copied.
        again = buffer.to_device("cuda:0")
        assert not again.mapped and ctypes.string_at(again.data_ptr, again.nbytes) == content
        del again
    del tensor
    gc.collect()
    buffer.close()


class Managed(ctypes.Structure):
    """The beginning of DLManagedTensorVersioned."""

    _fields_ = [
        ("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def test_consumer_by_dlpack(driver: StandIn, model: Path, tensors: dict[str, models.Tensor]) -> None:
    for name, tensor in dmabuf_dio.iter_tensors(model, only=[*DTYPES, "large", "scalar"], device="cuda:1"):
        size, code, letter = DTYPES[tensor.dtype]
        capsule = tensor.__dlpack__(max_version=(1, 0), stream=2, dl_device=(2, 1), copy=False)
        managed = Managed.from_address(capsule_pointer(capsule, b"dltensor_versioned"))
        assert (list(managed.device), managed.flags, managed.byte_offset) == ([2, 1], 0, 0)
        assert (managed.code, managed.bits, managed.lanes) == (code, 8 * size, 1)
        assert tuple(managed.shape[: managed.ndim]) == tensor.shape
        assert tensor.data_ptr % 256 == 0 and managed.data == tensor.data_ptr
        described = getattr(tensor, "__cuda_array_interface__", None)
        if letter:
            assert described is not None
            order = "<" if size > 1 else "|"
            assert described["typestr"] == f"{order}{letter}{size}" and described["shape"] == tensor.shape
            assert (described["version"], described["strides"], described["data"][1]) == (3, None, False)
        else:
            assert described is None
        expected = tensors[name][2]
        del tensor
        assert ctypes.string_at(managed.data, len(expected)) == expected
        del capsule, managed


def test_requests_of_consumers_that_cannot_be_met(driver: StandIn, model: Path) -> None:
    cases: list[tuple[str, list[int], list[int | None]]] = [
        ("cuda", [0, -2], [None, -1, 1, 2, 4096]),
        ("hip", [1, 2, -2], [None, -1, 0, 4096]),
    ]
    for device, bad, good in cases:
        tensor = dict(dmabuf_dio.iter_tensors(model, only=["F32"], device=device))["F32"]
        for stream in bad:
            refused(ValueError, f"stream={stream}", tensor.__dlpack__, stream=stream)
        for accepted in good:
            tensor.__dlpack__(stream=accepted, max_version=(1, 1))
        refused(BufferError, "dl_device", tensor.__dlpack__, dl_device=(1, 0))
        refused(BufferError, "no copy", tensor.__dlpack__, copy=True)
        refused(TypeError, "surprise", tensor.__dlpack__, surprise=1)


def test_tensor_without_bytes(driver: StandIn, model: Path) -> None:
    empty = dict(dmabuf_dio.iter_tensors(model, only=["empty"], device="cuda"))["empty"]
    assert (empty.data_ptr, empty.nbytes) == (0, 0)
    assert empty.__cuda_array_interface__["data"] == (0, False)
    # dlpack.h: "if the tensor is of size zero, then the data pointer should be set to NULL"
    capsule = empty.__dlpack__(max_version=(1, 0), stream=1)
    managed = Managed.from_address(capsule_pointer(capsule, b"dltensor_versioned"))
    assert managed.data is None and tuple(managed.shape[: managed.ndim]) == (0, 4)


@pytest.mark.parametrize("call", ["cuMemAlloc", "cuMemHostRegister", "cuMemcpyHtoDAsync", "cuEventRecord"])
def test_refusals_of_the_driver_leave_nothing(driver: StandIn, model: Path, call: str) -> None:
    failures = 0
    for times in range(1, 12):
        driver.setup(delay=300, call=call, times=times, status=719)
        try:
            list(dmabuf_dio.iter_tensors(model, window=4 << 20, device="cuda"))
        except RuntimeError as error:
            assert "CUDA device 0 refuses" in str(error) and "unspecified launch failure" in str(error)
            assert any("dmesg" in note for note in error.__notes__)
            failures += 1
        driver.setup()
        gc.collect()
        driver.assert_clean()
    assert failures > 1


def test_too_little_memory(driver: StandIn, model: Path, file: Path) -> None:
    driver.setup(memory=1 << 20)
    error = refused(MemoryError, "bytes free: 5246977 are wanted", dmabuf_dio.load(file).to_device, "cuda")
    assert any("load less" in note for note in error.__notes__)
    refused(MemoryError, "are wanted", list, dmabuf_dio.iter_tensors(model, device="cuda"))


def test_memory_that_torch_keeps_is_used(
    driver: StandIn, model: Path, file: Path, content: bytes, tensors: dict[str, models.Tensor]
) -> None:
    torch = mock.Mock()
    torch.version.hip = None
    torch.cuda.current_device.return_value = 1
    torch.cuda.empty_cache = lambda: driver.setup()
    with mock.patch.dict(sys.modules, torch=torch):
        driver.setup(memory=1 << 20)
        found = dmabuf_dio.load(file).to_device("cuda")
        assert found.device == "cuda:1" and ctypes.string_at(found.data_ptr, found.nbytes) == content
        driver.setup(memory=1 << 20)
        assert [name for name, _ in dmabuf_dio.iter_tensors(model, device="cuda")] == list(tensors)
        torch.cuda.is_initialized.return_value = False
        driver.setup(memory=1 << 20)
        refused(MemoryError, "are wanted", list, dmabuf_dio.iter_tensors(model, device="cuda"))


def test_program_that_stops_leaves_nothing(driver: StandIn, model: Path) -> None:
    driver.setup(delay=3000)
    tensors = dmabuf_dio.iter_tensors(model, window=4 << 20, device="cuda")
    next(tensors)
    del tensors
    gc.collect()
    driver.assert_clean()

    def raising() -> None:
        for _ in dmabuf_dio.iter_tensors(model, window=4 << 20, device="cuda"):
            raise LookupError("a consumer's")

    refused(LookupError, "consumer", raising)
    gc.collect()
    driver.assert_clean()


def test_file_that_shrinks_is_an_error(driver: StandIn, folder: Path) -> None:
    path = models.safetensors(folder / "shrinks.safetensors", {"one": ("U8", [1 << 20], bytes(1 << 20))})
    opened = dmabuf_dio.open(path)
    os.truncate(path, 5000)
    refused(ValueError, "exceeds the file", list, dmabuf_dio.iter_tensors(opened, device="cuda"))


def test_threads_share_a_device(driver: StandIn, model: Path, tensors: dict[str, models.Tensor]) -> None:
    driver.setup(delay=200)

    def load(_: int) -> None:
        for name, tensor in dmabuf_dio.iter_tensors(model, window=4 << 20, device="cuda:0"):
            assert content(tensor) == tensors[name][2]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(load, range(4)))


def test_child_leaves_the_devices_of_its_parent_alone(driver: StandIn, model: Path) -> None:
    device = _device.opened("cuda:1")
    kept = dict(dmabuf_dio.iter_tensors(model, only=["large"], device="cuda:1"))
    before = driver.counters()
    child = os.fork()
    if child == 0:
        kept.clear()
        gc.collect()
        try:
            device.copy(dmabuf_dio.Buffer.alloc(5000))
            os._exit(1)
        except RuntimeError as error:
            del device
            os._exit(0 if "parent" in str(error) and driver.counters() == before else 2)
    assert os.waitpid(child, 0)[1] == 0
    assert driver.counters() == before
    del device


def test_child_does_not_wait_for_tensors_of_its_parent(driver: StandIn, model: Path) -> None:
    found = dmabuf_dio.iter_tensors(model, window=4 << 20, device="cuda")
    next(found)
    child = os.fork()
    if child == 0:
        # Ends a child that waits.
        signal.alarm(60)
        try:
            list(found)
            os._exit(1)
        except RuntimeError as error:
            os._exit(0 if "parent" in str(error) else 2)
    assert os.waitpid(child, 0)[1] == 0
    # The parent goes on.
    assert len(list(found)) > 300


def test_child_is_told_why_it_cannot_open_a_device(driver: StandIn, model: Path) -> None:
    kept = dict(dmabuf_dio.iter_tensors(model, only=["large"], device="cuda"))
    child = os.fork()
    if child == 0:
        try:
            _device.opened("cuda")
            os._exit(1)
        except RuntimeError as error:
            os._exit(0 if any("spawn" in note for note in error.__notes__) else 2)
    assert os.waitpid(child, 0)[1] == 0
    kept.clear()


@pytest.mark.parametrize(
    "device", ["cuda:x", "xpu", "cuda:-1", "", "cud", "cuda:", "cuda:01", "cuda:\u00b2", "cuda:99999999999"]
)
def test_names_that_are_no_device(model: Path, device: str) -> None:
    refused(ValueError, f"device='{device}' is invalid", dmabuf_dio.iter_tensors, model, device=device)


def test_machine_without_a_driver(model: Path, file: Path) -> None:
    with mock.patch.object(_device, "library", "/nonexistent/driver.so"):
        error = refused(RuntimeError, "no HIP driver", dmabuf_dio.load(file).to_device, "hip:0")
        assert any("install the HIP driver" in note for note in error.__notes__)
        refused(RuntimeError, "no CUDA driver", dmabuf_dio.iter_tensors, model, device="cuda")
