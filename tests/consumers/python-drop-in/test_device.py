# SPDX-License-Identifier: MIT OR Apache-2.0
"""torch's tensors on a device, for which a library stands in: the same as on the host, bit by bit."""

import ctypes
import gc
import subprocess
import sys
import threading
from pathlib import Path
from unittest import mock

import pytest
import safetensors
import safetensors.torch
import torch
from test_drop_in import bits, model  # noqa: F401

import dmabuf_dio
import dmabuf_dio.torch
from dmabuf_dio import _device, _torch_device, vllm

sys.path.append(str(Path(__file__).resolve().parents[3] / "bindings/python/tests"))
from stand_in import StandIn  # noqa: E402

MIB = 1 << 20


def shared(tensor):
    """The stand-in's memory is the host's, which this torch, of the CPU, can use."""
    found = (ctypes.c_uint8 * tensor.nbytes).from_address(tensor.data_ptr)
    found.kept = tensor
    return torch.frombuffer(found, dtype=torch.uint8)


@pytest.fixture(params=["cuda", "hip"])
def driver(request, tmp_path):
    """A driver whose devices may copy to any address; torch allocates on the CPU. Clean after each test."""
    stand_in = StandIn(tmp_path)
    stand_in.setup(delay=500, memory=0)

    def allocate(shape, dtype, device):
        assert device.type == "cuda"
        return torch.empty(shape, dtype=dtype)

    with (
        mock.patch.object(_device, "library", stand_in.path),
        mock.patch.object(_torch_device, "allocate", allocate),
        mock.patch.object(_torch_device, "stream", lambda device: 0),
        mock.patch.object(_torch_device, "shared", shared),
        mock.patch.object(torch.version, "hip", "7.0" if request.param == "hip" else None),
    ):
        yield stand_in
    gc.collect()
    stand_in.assert_clean()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Some tensors are worth a load by themselves, others are not."""
    torch.manual_seed(4)
    tensors = {f"layer.{number}": torch.randn(2500, 2000) for number in range(3)}
    tensors |= {f"norm.{number}": torch.randn(3000) for number in range(5)}
    tensors["cube"] = torch.randint(0, 255, (3, 5000, 2000), dtype=torch.uint8)
    path = tmp_path_factory.mktemp("large") / "model.safetensors"
    for pad in ("", "8 bytes."):
        safetensors.torch.save_file(tensors, path, {"pad": pad})
        # Tensors elsewhere than at multiples of 16 do not stay where they are read.
        if all(info.offset % 16 == 0 for info in map(dmabuf_dio.open(path).__getitem__, tensors)):
            return path
    raise AssertionError("no aligned file")


def assert_same(ours, theirs):
    assert list(ours) == list(theirs)
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype and ours[name].shape == tensor.shape, name
        assert torch.equal(bits(ours[name]), bits(tensor)), name


def test_load_file_fills_the_memory_of_a_device(model, driver):  # noqa: F811
    theirs = safetensors.torch.load_file(model)
    assert_same(dmabuf_dio.torch.load_file(model, "cuda:1"), theirs)
    assert_same(dmabuf_dio.torch.load_file(model, 1), theirs)
    with dmabuf_dio.safe_open(model, "pt", "cuda") as file:
        file.get_tensors()
        report = file.report()
    assert report["requested"] == sum(tensor.nbytes for tensor in theirs.values()) <= report["read"]
    driver.setup(memory=0, call="cuMemcpyHtoDAsync", times=3, status=719)
    with pytest.raises(RuntimeError, match="device 1 refuses to copy: unspecified launch failure") as raised:
        dmabuf_dio.torch.load_file(model, "cuda:1")
    assert any("dmesg" in note for note in raised.value.__notes__)
    assert driver.counters().copied >= 3 * sum(tensor.nbytes for tensor in theirs.values())


def test_tensors_stay_where_the_disk_has_put_them(large, driver):
    driver.integrate()
    theirs = safetensors.torch.load_file(large)
    ours = dmabuf_dio.torch.load_file(large, "cuda")
    assert_same(ours, theirs)
    assert driver.counters().copies == 0 and driver.counters().pinned == 1
    with dmabuf_dio.safe_open(large, "pt", "cuda") as file:
        tensor = file.get_tensor("layer.1")
    assert torch.equal(tensor, theirs["layer.1"]) and driver.counters().pinned == 2
    # The memory goes with the last tensor in it.
    kept = ours["norm.2"]
    ours.clear()
    del tensor
    gc.collect()
    assert driver.counters().pinned == 1 and torch.equal(kept, theirs["norm.2"])


def host_only(name):
    """torch cannot move a tensor to a device that is not there."""
    return mock.patch.object(torch.Tensor, "to", lambda tensor, device: tensor)


def test_get_tensor_loads_what_is_worth_it(large, driver):
    theirs = safetensors.torch.load_file(large)
    with dmabuf_dio.safe_open(large, "pt", "cuda") as file, host_only("cuda"):
        assert_same({name: file.get_tensor(name) for name in file.offset_keys()}, theirs)
        report = file.report()
    copied = sum(tensor.nbytes for tensor in theirs.values() if tensor.nbytes > 16 * MIB)
    assert copied > 0 and driver.counters().copied == copied
    # None is read twice; a small one may come from the page cache.
    assert report["requested"] == sum(tensor.nbytes for tensor in theirs.values())
    assert report["read"] in range(copied, report["requested"] + 2 * MIB)


def test_read_only_memory_is_no_tensor_of_torch(large, driver):
    driver.integrate()
    content = torch.frombuffer(bytearray(large.read_bytes()), dtype=torch.uint8)
    read_only = dmabuf_dio.load(large, kind="memfd").to_device("cuda")
    # HIP pins no memory that may not be written: it is copied.
    if read_only.mapped:
        with pytest.raises(BufferError, match="writable=True"):
            read_only.torch()
    else:
        assert torch.equal(read_only.torch(), content)
    writable = dmabuf_dio.load(large, kind="memfd", writable=True).to_device("cuda")
    assert writable.mapped and torch.equal(writable.torch(), content)


def test_tensors_of_a_file_are_on_one_device(large, driver):
    theirs = safetensors.torch.load_file(large)
    current, used = [1], []

    def empty(shape, dtype, device):
        used.append(device)
        return torch.empty(shape, dtype=dtype)

    with (
        mock.patch.object(torch.cuda, "is_initialized", lambda: True),
        mock.patch.object(torch.cuda, "current_device", lambda: current[0]),
        mock.patch.object(_torch_device, "allocate", empty),
        dmabuf_dio.safe_open(large, "pt", "cuda") as file,
        host_only("cuda"),
    ):
        assert torch.equal(file.get_tensor("layer.1"), theirs["layer.1"])
        # The program goes on with another device.
        current[0] = 0
        assert torch.equal(file.get_slice("cube")[0:2], theirs["cube"][0:2])
    assert set(used) == {torch.device("cuda", 1)}


INDEXES = {
    "cube": [slice(0, 2), slice(1, 3), 1, (1, ...), (slice(None), slice(0, 4999)), (2, slice(5, 4000, 3))],
    "layer.2": [slice(0, 2400), slice(10, 2500, 7), (slice(None), slice(0, 1000)), slice(3, 5), ...],
}


def test_slices_on_a_device(large, driver):
    for name, indexes in INDEXES.items():
        for index in indexes:
            before = driver.counters().copied
            with (
                dmabuf_dio.safe_open(large, "pt", "cuda") as ours,
                safetensors.safe_open(large, "pt") as theirs,
                host_only("cuda"),
            ):
                found, expected = ours.get_slice(name)[index], theirs.get_slice(name)[index]
            assert torch.equal(found, expected) and found.is_contiguous(), (name, index)
            assert found.untyped_storage().nbytes() == found.nbytes
            # Rows that lie together and are worth it go straight to the device.
            rows = {"cube": [slice(0, 2), slice(1, 3)], "layer.2": [slice(0, 2400), slice(10, 2500, 7), ...]}
            assert (driver.counters().copied > before) == (index in rows[name]), (name, index)


def test_iter_tensors_as_torch(model, driver):  # noqa: F811
    theirs = safetensors.torch.load_file(model)
    for device in ["cuda:1", torch.device("cuda", 1)]:
        found = dmabuf_dio.iter_tensors(model, device=device, window=8 * MIB)
        assert_same({name: tensor.torch() for name, tensor in found}, {
            name: theirs[name] for name in dmabuf_dio.open(model)
        })


def test_big_endian_tensors_are_swapped_on_the_device(driver, tmp_path):
    sys.path.append(str(Path(__file__).resolve().parents[3] / "bindings/python/tests"))
    import models  # noqa: PLC0415

    values = torch.arange(24, dtype=torch.int16)
    swapped = bits(values).view(-1, 2).flip(1).numpy().tobytes()
    path = models.gguf(tmp_path / "big.gguf", {"t": (25, [4, 6], swapped)}, {}, ">")
    ((_, tensor),) = dmabuf_dio.iter_tensors(path, device="cuda")
    assert torch.equal(tensor.torch(), values.view(4, 6))
    with pytest.raises(BufferError, match="big-endian"):
        tensor.__dlpack__()


def test_loader_of_vllm(large, driver):
    theirs = safetensors.torch.load_file(large)
    assert_same(dict(vllm.weights(str(large), torch.device("cuda"))), theirs)
    assert driver.counters().copied == sum(tensor.nbytes for tensor in theirs.values())

    class Model:
        def parameters(self):
            return iter([mock.Mock(device=torch.device("cuda", 1))])

    assert vllm._device(Model()) == torch.device("cuda", 1)
    assert vllm._device(torch.nn.Linear(2, 2)) is None
    assert vllm._device(torch.nn.Identity()) is None


def test_threads_load_at_once(large, driver):
    theirs = safetensors.torch.load_file(large)
    failures = []

    def load():
        try:
            assert_same(dmabuf_dio.torch.load_file(large, "cuda:1"), theirs)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_machine_without_the_driver_says_so(model):  # noqa: F811
    with (
        mock.patch.object(_device, "library", "/nonexistent/driver.so"),
        mock.patch.object(_torch_device, "allocate", lambda shape, dtype, device: torch.empty(shape, dtype=dtype)),
        mock.patch.object(_torch_device, "stream", lambda device: 0),
        pytest.raises(RuntimeError, match="no CUDA driver") as raised,
    ):
        dmabuf_dio.torch.load_file(model, "cuda")
    assert any("install the CUDA driver" in note for note in raised.value.__notes__)


def test_ctrl_c_leaves_nothing(large, driver):
    program = """
import ctypes, os, signal, sys, threading
import torch
import dmabuf_dio
from dmabuf_dio import _device
_device.library = sys.argv[2]
library = ctypes.CDLL(sys.argv[2])
library.stand_in_setup(ctypes.c_uint64(1), 20000, ctypes.c_uint64(1 << 40), b"", 0, 0)
tensors = dmabuf_dio.iter_tensors(sys.argv[1], device="cuda", window=4 << 20)
next(tensors)
try:
    threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
    for _ in tensors:
        pass
except KeyboardInterrupt:
    pass
else:
    sys.exit("no interrupt")
tensors = _ = None
counters = (ctypes.c_uint64 * 11)()
library.stand_in_counters(counters)
print(*counters)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, large, driver.path], stdout=subprocess.PIPE, text=True, check=True
    )
    _, _, pinned, _, streams, events, contexts, allocations, _, pageable, torn = map(int, done.stdout.split())
    assert (pinned, streams, events, contexts, allocations, pageable, torn) == (0,) * 7, done.stdout
