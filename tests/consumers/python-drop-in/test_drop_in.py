# SPDX-License-Identifier: MIT OR Apache-2.0
"""torch, transformers and diffusers, with and without the drop-in: the same, bit by bit."""

import gc
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import safetensors
import safetensors.torch
import torch

import dmabuf_dio
import dmabuf_dio.torch
from dmabuf_dio import _safe_open


@pytest.fixture
def installed():
    """The drop-in is in place; how many files it opened."""
    with mock.patch.object(_safe_open, "Model", wraps=_safe_open.Model) as opened:
        dmabuf_dio.install()
        try:
            yield opened
        finally:
            dmabuf_dio.uninstall()


DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.float8_e8m0fnu, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
]  # fmt: skip


def bits(tensor):
    return tensor.contiguous().flatten().view(torch.uint8) if tensor.numel() else tensor


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    torch.manual_seed(1)
    tensors = {}
    for dtype in DTYPES:
        size = torch.empty(0, dtype=dtype).element_size()
        random = torch.randint(0, 2 if dtype is torch.bool else 120, (6, 32 * size), dtype=torch.uint8)
        tensors[str(dtype)] = random.view(dtype)
    tensors["large"] = torch.randn(1000, 3000)
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.empty(0, 4)
    if hasattr(torch, "float4_e2m1fn_x2"):
        tensors["fp4"] = torch.randint(0, 256, (4, 16), dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    return path


def test_load_file_matches_safetensors(model):
    ours, theirs = dmabuf_dio.torch.load_file(model), safetensors.torch.load_file(model)
    assert list(ours) == list(theirs)
    for name, tensor in theirs.items():
        assert (ours[name].dtype, ours[name].shape) == (tensor.dtype, tensor.shape), name
        assert torch.equal(bits(ours[name]), bits(tensor)), name
        assert ours[name].is_contiguous()
    # Each keeps its own memory.
    kept = ours["large"]
    ours.clear()
    gc.collect()
    assert torch.equal(kept, theirs["large"])
    kept[0, 0] = 7
    assert safetensors.torch.load_file(model)["large"][0, 0] == theirs["large"][0, 0]


def test_import_maps_the_code_of_torch(model):
    """A load does not wait for it to come from the disk."""
    program = """
import os, resource, sys
import dmabuf_dio.torch
mapped = {line.split()[-1] for line in open("/proc/self/maps") if line.rstrip().endswith(".so")}
for path in mapped:
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)  # leaves what is mapped
    os.close(file)
before = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
dmabuf_dio.torch.load_file(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_majflt - before)
"""
    done = subprocess.run([sys.executable, "-c", program, model], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 2


def test_safe_open_matches_safetensors(model):
    with (
        dmabuf_dio.safe_open(model, framework="pt") as ours,
        safetensors.safe_open(model, framework="pt") as theirs,
    ):
        assert (ours.keys(), ours.offset_keys()) == (theirs.keys(), theirs.offset_keys())
        assert ours.metadata() == theirs.metadata()
        for index in ("[:]", "[...]", "[5]", "[-1]", "[2:400]", "[:,1]", "[:,::7]", "[3:9:2,100:200]", "[0,0]", "[...,4]"):
            one, two = (eval(f"file.get_slice('large'){index}", {"file": file}) for file in (ours, theirs))
            assert one.shape == two.shape and one.dtype == two.dtype and torch.equal(one, two)
            # Memory of its own has what was requested, as in safetensors with "pread".
            assert one.is_contiguous() and one.untyped_storage().nbytes() == one.nbytes
        assert ours.get_slice("scalar")[...] == theirs.get_slice("scalar")[...]
        assert ours.get_tensor("torch.bfloat16").dtype == torch.bfloat16
    for device in ("meta", torch.device("meta")):
        with dmabuf_dio.safe_open(model, "pt", device=device) as file:
            assert file.get_tensor("large").is_meta
    with pytest.raises(safetensors.SafetensorError, match="invalid"):
        dmabuf_dio.safe_open(model, "pt", device="nonsense")


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_in_place_changes_are_seen_by_nobody_else(model, backend):
    """As in safetensors with "pread", with which this compares both."""
    found = []
    for open_, how in ((dmabuf_dio.safe_open, backend), (safetensors.safe_open, "pread")):
        with open_(model, "pt", backend=how) as file:
            found.append([])
            for name in ("large", "torch.float32", "torch.bfloat16", "torch.int8", "scalar"):
                for index in ("...", "0:1", "::2", "1:3", "0"):
                    for ask in ("file.get_tensor(name)", f"file.get_slice(name)[{index}]"):
                        if name == "scalar" and index != "...":
                            continue
                        tensor = eval(ask, {"file": file, "name": name})
                        found[-1].append((name, ask, tensor.dtype, bits(tensor).numpy().tobytes()))
                        tensor += 1
    for one, two in zip(*found, strict=True):
        assert one == two, one[:3]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_process_pools_load_with_installed_functions(model, method):
    """In a process of its own: children that are forked beside threads of torch may hang in torch."""
    program = """
import sys, torch, safetensors.torch, dmabuf_dio
if __name__ == "__main__":
    dmabuf_dio.install()
    with torch.multiprocessing.get_context(sys.argv[2]).Pool(2) as pool:
        for tensors in pool.map(safetensors.torch.load_file, [sys.argv[1]] * 2):
            print(tensors["large"].shape)
"""
    path = model.parent / "pool.py"
    path.write_text(program)
    done = subprocess.run([sys.executable, path, model, method], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.count("[1000, 3000]") == 2


def test_unaligned_tensor_has_its_bytes(tmp_path):
    data = os.urandom(40)
    header = json.dumps(
        {"a": {"dtype": "I8", "shape": [1], "data_offsets": [0, 1]},
         "b": {"dtype": "F32", "shape": [10], "data_offsets": [1, 41]}}
    ).encode()  # fmt: skip
    path = tmp_path / "odd.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"x" + data)
    assert bits(dmabuf_dio.torch.load_file(path)["b"]).numpy().tobytes() == data
    with dmabuf_dio.safe_open(path, "pt") as file:
        assert bits(file.get_tensor("b")).numpy().tobytes() == data


def single(path, dtype, shape, data):
    header = json.dumps({"a": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this torch has no packed type")
@pytest.mark.parametrize("shape", [[8, 1], [2, 3], [4, 1, 1], [0, 1], [4], [2, 3, 2], [2, 0]])
def test_packed_types_load_as_in_safetensors(shape, tmp_path):
    """As safetensors: a shape in bytes, or refused where rows are not whole bytes."""
    count = 1
    for size in shape:
        count *= size
    path = single(tmp_path / "packed.safetensors", "F4", shape, os.urandom(count // 2))

    def found(open_, ask):
        with open_(path, "pt") as file:
            try:
                tensor = ask(file)
                return tensor.dtype, tensor.shape, bits(tensor).tolist() if tensor.numel() else []
            except safetensors.SafetensorError as error:
                return error

    for ask in (lambda file: file.get_tensor("a"), lambda file: file.get_tensors()["a"]):
        ours, theirs = found(dmabuf_dio.safe_open, ask), found(safetensors.safe_open, ask)
        if isinstance(theirs, Exception):
            assert isinstance(ours, safetensors.SafetensorError) and str(shape) in str(ours), ours
        else:
            assert ours == theirs


def test_big_endian_tensors_become_copies(tmp_path):
    """torch has one byte order: a copy."""

    def text(value):
        return struct.pack(">Q", len(value)) + value

    tensors = {"f": (0, torch.randn(3, 4)), "b": (30, torch.randn(5).bfloat16()), "i": (24, torch.arange(3).to(torch.int8))}
    out, data = b"GGUF" + struct.pack(">IQQ", 3, len(tensors), 0), b""
    for name, (kind, tensor) in tensors.items():
        out += text(name.encode()) + struct.pack(">I", tensor.dim()) + struct.pack(f">{tensor.dim()}Q", *reversed(tensor.shape))
        out += struct.pack(">IQ", kind, len(data))
        data += bytes(bits(tensor).view(-1, tensor.element_size()).flip(1).flatten().tolist())
        data += bytes(-len(data) % 32)
    path = tmp_path / "big.gguf"
    path.write_bytes(out + bytes(-len(out) % 32) + data)
    loaded = dmabuf_dio.load_tensors(path, kind="private", writable=True)
    for name, (_, tensor) in tensors.items():
        found = loaded[name].torch()
        assert found.dtype == tensor.dtype and torch.equal(bits(found), bits(tensor)), name
    with pytest.raises(BufferError, match="big-endian"):
        torch.from_dlpack(loaded["f"])


def test_a_tensor_of_torch_keeps_the_buffer_open(model):
    content = model.read_bytes()
    buffer = dmabuf_dio.load(model, kind="private", writable=True)
    tensor = torch.frombuffer(buffer, dtype=torch.uint8)
    with pytest.raises(BufferError, match="1 view lives: a memoryview or array taken at .*test_drop_in.py"):
        buffer.close()
    assert tensor.numpy().tobytes() == content
    other = torch.from_dlpack(buffer)
    del tensor
    with pytest.raises(BufferError, match="for DLPack"):
        buffer.close()
    assert other.numpy().tobytes() == content
    del other
    buffer.close()
    with pytest.raises(BufferError, match="writable=True"):
        dmabuf_dio.load_tensors(model, kind="private")["large"].torch()


def test_load_does_not_double_memory(tmp_path):
    path = tmp_path / "large.safetensors"
    length = 256 << 20
    safetensors.torch.save_file({str(number): torch.zeros(length // 64, dtype=torch.uint8) for number in range(64)}, path)
    program = """
import sys, torch, dmabuf_dio.torch
def resident():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return sum(int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem", "HugetlbPages") if name in fields)
# Threads of torch are no part of the load.
assert torch.zeros(4 << 20, dtype=torch.uint8).sum() == 0
before = resident()
tensors = dmabuf_dio.torch.load_file(sys.argv[1])
assert sum(int(tensor.sum()) for tensor in tensors.values()) == 0
print(resident() - before)
"""
    run = subprocess.run([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True, check=True)
    assert length * 0.95 < int(run.stdout) < length * 1.05


def minilm():
    root = Path(os.environ["DMABUF_DIO_MINILM"])
    return next(path.parent for path in root.rglob("config.json") if (path.parent / "model.safetensors").exists())


def embed(model):
    with torch.no_grad():
        inputs = {"input_ids": torch.arange(100, 164).reshape(4, 16), "attention_mask": torch.ones(4, 16, dtype=torch.long)}
        return model(**inputs).last_hidden_state


def test_transformers_loads_the_same_model(installed, tmp_path):
    from transformers import AutoModel

    theirs, folder = None, minilm()
    dmabuf_dio.uninstall()
    theirs = embed(AutoModel.from_pretrained(folder))
    assert installed.call_count == 0
    dmabuf_dio.install()
    model = AutoModel.from_pretrained(folder)
    assert installed.call_count > 0
    assert torch.equal(embed(model), theirs)
    # In shards, with its index
    model.save_pretrained(tmp_path, max_shard_size="20MB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    before = installed.call_count
    assert torch.equal(embed(AutoModel.from_pretrained(tmp_path)), theirs)
    assert installed.call_count > before + 2


def test_diffusers_loads_the_same_model(installed, tmp_path):
    from diffusers import UNet2DModel

    torch.manual_seed(2)
    config = dict(sample_size=8, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
                  down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))  # fmt: skip
    model = UNet2DModel(**config)
    for name, shards in (("one", "10GB"), ("many", "500KB")):
        model.save_pretrained(tmp_path / name, max_shard_size=shards)
        before = installed.call_count
        loaded = UNet2DModel.from_pretrained(tmp_path / name)
        assert installed.call_count > before, name
        for key, value in model.state_dict().items():
            assert torch.equal(loaded.state_dict()[key], value), key


def test_vllm_weights_match_safetensors(model, tmp_path):
    from dmabuf_dio.vllm import weights

    theirs = safetensors.torch.load_file(model)
    for name, tensor in weights(str(model.parent)):
        assert torch.equal(bits(tensor), bits(theirs.pop(name)))
    assert not theirs


@pytest.mark.parametrize("window", [None, 0, 1 << 20, 8 << 20])
def test_tensors_beyond_the_window_pass_through_it_to_their_device(model, window):
    """The CPU plays the other device."""
    theirs = safetensors.torch.load_file(model)
    with mock.patch.object(_safe_open, "_device", lambda device, for_torch: torch.device("cpu")):
        with dmabuf_dio.safe_open(model, "pt", window=window) as file:
            ours = file.get_tensors()
            one = file.get_tensor("large")
    assert list(ours) == list(theirs)
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype and torch.equal(bits(ours[name]), bits(tensor)), name
    assert torch.equal(one, theirs["large"])


@pytest.mark.parametrize("shape", [(1 << 14, 1 << 12), (2, 1, 2, 1 << 24), (1, 1 << 26)])
def test_tensor_on_its_way_to_a_device_takes_the_window(tmp_path, shape):
    """In a process of its own. The device "meta" has no memory."""
    path = tmp_path / "large.safetensors"
    before = {f"before{number}": torch.ones(1 << 20) for number in range(4)}
    safetensors.torch.save_file({**before, "large": torch.zeros(shape), "small": torch.ones(8)}, path)
    program = """
import os, sys, dmabuf_dio, dmabuf_dio.torch
def anonymous():
    names = ("RssAnon", "RssShmem", "HugetlbPages")
    lines = [line.split() for line in open("/proc/self/status")]
    return sum(int(line[1]) << 10 for line in lines if line[0][:-1] in names)
import torch
peaks = []
copy = torch.Tensor.copy_
def watched(*arguments):
    peaks.append(anonymous())
    return copy(*arguments)
file = os.open(sys.argv[1], os.O_RDONLY)
os.fdatasync(file)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
with dmabuf_dio.safe_open(sys.argv[1], "pt", device="meta", window=16 << 20, backend="pread") as file:
    torch.Tensor.copy_ = watched
    before = anonymous()
    # Neither read ahead as a whole nor twice
    tensors = {name: file.get_tensor(name) for name in file.offset_keys()}
    report = file.report()
assert tensors["large"].device.type == "meta"
print(max(peaks) - before, len(peaks), report["requested"], report["read"], *tensors["large"].shape)
"""
    done = subprocess.run([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True, check=True)
    peak, pieces, requested, read, *found = map(int, done.stdout.split())
    assert found == list(shape)
    assert pieces >= 64 and peak <= 48 << 20, done.stdout
    size = path.stat().st_size
    assert requested in range(size - 4096, size) and read in range(256 << 20, size + (1 << 20)), (done.stdout, size)
