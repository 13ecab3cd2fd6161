# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic
"""The replacements of safetensors' own functions; without torch, which tests/consumers has."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from safetensors import SafetensorError
from helpers import drop_cache, refused
from web import serving

import dmabuf_dio
import dmabuf_dio.numpy


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {
        "a": rng.random((6, 4, 5), np.float32),
        "b": rng.integers(0, 100, (300, 400)),
        "flag": np.array([True, False]),
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3), np.int8),
    }


@pytest.fixture(scope="module")
def model(folder: Path, arrays: dict[str, Any]) -> Path:
    path = folder / "theirs.safetensors"
    safetensors.numpy.save_file(arrays, path, {"made": "by safetensors"})
    return path


def test_load_file_matches_safetensors(model: Path, arrays: dict[str, Any]) -> None:
    ours, theirs = dmabuf_dio.numpy.load_file(model), safetensors.numpy.load_file(model)
    assert list(ours) == list(theirs)
    for name, array in arrays.items():
        assert ours[name].dtype == theirs[name].dtype == array.dtype
        assert ours[name].shape == theirs[name].shape
        assert ours[name].tobytes() == theirs[name].tobytes() == array.tobytes()
        assert ours[name].flags.writeable
    ours["a"][0] = 7
    assert safetensors.numpy.load_file(model)["a"].tobytes() == arrays["a"].tobytes()


INDEXES = [
    "[:]", "[...]", "[()]", "[0]", "[-1]", "[True]", "[0:2]", "[:,1]", "[:,::2]", "[::2]", "[1:,2:3,:]", "[...,1]",
    "[0,...]", "[0,0,0]", "[[]]", "[2:,:,1:3]", "[:6]", "[1:5:3]",
]  # fmt: skip
WRONG = ["[[0,1]]", "[:,[0]]", "[None]", "[6]", "[-7]", "[0,0,0,0]", "['x']", "[:7]", "[::-1]", "[::0]", "[1.5]", "[0,:7]"]

SAME_WORDS = ["[[0,1]]", "[6]", "[-7]", "[:7]", "[0,:7]"]


def test_safe_open_matches_safetensors(model: Path) -> None:
    with (dmabuf_dio.safe_open(model, framework="np") as ours, safetensors.safe_open(model, framework="np") as theirs):
        assert ours.keys() == theirs.keys()
        assert ours.offset_keys() == theirs.offset_keys()
        assert ours.metadata() == theirs.metadata() == {"made": "by safetensors"}
        assert list(ours.get_tensors()) == list(theirs.get_tensors())
        for name in ours.keys():
            assert np.array_equal(ours.get_tensor(name), theirs.get_tensor(name))
            assert ours.get_slice(name).get_shape() == theirs.get_slice(name).get_shape()
            assert ours.get_slice(name).get_dtype() == theirs.get_slice(name).get_dtype()
        for index in INDEXES:
            one = eval(f"file.get_slice('a'){index}", {"file": ours})
            two = eval(f"file.get_slice('a'){index}", {"file": theirs})
            assert one.dtype == two.dtype and one.shape == two.shape, index
            assert np.array_equal(one, two) and one.flags.c_contiguous, index
        for index in WRONG:
            said: list[str] = []
            for file in (ours, theirs):
                raised = refused(SafetensorError, "", eval, f"file.get_slice('a'){index}", {"file": file})
                said.append(str(raised))
            if index in SAME_WORDS:
                assert said[0] == said[1]
        assert ours.get_slice("scalar")[...] == theirs.get_slice("scalar")[...]
        kept, slices = ours.get_tensor("b"), (ours.get_slice("a"), theirs.get_slice("a"))
    assert np.array_equal(slices[0][1:3], slices[1][1:3])
    for call in ("keys", "offset_keys", "metadata", "get_tensors"):
        with pytest.raises(SafetensorError, match="closed"):
            getattr(ours, call)()
    assert np.array_equal(kept, safetensors.numpy.load_file(model)["b"])


@pytest.fixture(scope="module")
def many(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Tensors of 256 KiB and a few bytes."""
    path = folder / "many.safetensors"
    arrays = {f"{number:03}": np.full(65536 + number, number, np.int32) for number in range(100)}
    safetensors.numpy.save_file(arrays, path)
    return path, arrays


def test_in_the_order_of_the_file_few_loads_read_ahead(many: tuple[Path, dict[str, Any]]) -> None:
    path, arrays = many
    drop_cache(path)
    with dmabuf_dio.safe_open(path, "np", window=8 << 20) as file:
        for name in file.offset_keys():
            assert np.array_equal(file.get_tensor(name), arrays[name])
            report = file.report()
            assert report["read"] <= 2 * report["requested"]
        total = sum(array.nbytes for array in arrays.values())
        assert report["requested"] == total and report["window"] == 8 << 20
        # The first 4 MiB come through the page cache, and what the kernel reads ahead of them.
        assert 0 < report["read"] <= total and report["dropped"] == 0
        assert report["reads"] < 20


def test_announced_tensors_are_loaded_in_any_order(many: tuple[Path, dict[str, Any]]) -> None:
    """As transformers requests them: layer 2 after layer 1, in the file behind layers 10 to 19."""
    path, arrays = many
    drop_cache(path)
    with dmabuf_dio.safe_open(path, "np", window=64 << 20) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}
        for name in sorted(slices, key=lambda name: (int(name) % 10, name)):
            assert np.array_equal(slices[name][...], arrays[name])
        report = file.report()
    assert report["read"] == report["requested"] == sum(array.nbytes for array in arrays.values())
    assert report["dropped"] == 0


def test_out_of_order_nothing_else_is_loaded(many: tuple[Path, dict[str, Any]]) -> None:
    path, arrays = many
    drop_cache(path)
    with dmabuf_dio.safe_open(path, "np") as file:
        for name in ("050", "010", "090", "050"):
            array = file.get_tensor(name)
            assert np.array_equal(array, arrays[name])
            # Requested again, it is as in the file.
            array[:] = 7
        assert file.report()["read"] == 0


def test_slices_read_their_rows(folder: Path) -> None:
    path = folder / "rows.safetensors"
    whole = np.arange(6 << 20, dtype=np.int32).reshape(24, 256, 1024)
    safetensors.numpy.save_file({"a": whole, "b": whole[:1].copy()}, path)
    drop_cache(path)
    with dmabuf_dio.safe_open(path, "np") as file:
        piece = file.get_slice("a")
        for index in (np.s_[3:19], np.s_[5], np.s_[-1], np.s_[2:20:3, 5], np.s_[:], np.s_[4:18, 7:9]):
            drop_cache(path)
            before = file.report()["read"]
            assert np.array_equal(piece[index], whole[index])
            rows = np.atleast_3d(whole[index[0] if isinstance(index, tuple) else index])
            assert file.report()["read"] - before <= 3 * rows.nbytes + 8192
        assert file.report()["read"] > 16 << 20


def test_slices_that_exist_are_read_ahead(many: tuple[Path, dict[str, Any]]) -> None:
    """transformers creates a slice of each tensor before it uses the first."""
    path, arrays = many
    drop_cache(path)
    with dmabuf_dio.safe_open(path, "np", window=8 << 20) as file:
        slices = {name: file.get_slice(name) for name in list(arrays)[::2]}
        with ThreadPoolExecutor(4) as pool:
            for name, array in pool.map(lambda name: (name, slices[name][...]), slices):
                assert np.array_equal(array, arrays[name])
        report = file.report()
        # Between them are tensors that are not used: a load reads them if it reads on behind them.
        assert report["read"] <= 2.1 * report["requested"] and report["reads"] <= 2.1 * len(slices), report


def test_tensors_whose_rows_were_used_are_not_read_ahead(folder: Path) -> None:
    path = folder / "shards.safetensors"
    arrays = {f"{number}": np.full((5, 1 << 20), number, np.uint8) for number in range(3)}
    safetensors.numpy.save_file(arrays, path)
    drop_cache(path)
    with dmabuf_dio.safe_open(path, "np") as file:
        slices = {name: file.get_slice(name) for name in arrays}
        for name in ("1", "2"):
            assert np.array_equal(slices[name][1:2], arrays[name][1:2])
        assert np.array_equal(slices["0"][:], arrays["0"])
        assert file.report()["read"] <= arrays["0"].nbytes


def test_mappings_leave_some_for_the_process(folder: Path) -> None:
    path, size, most = folder / "mapped.safetensors", 64 << 10, 16 << 10
    header = {
        f"{number}": {"dtype": "U8", "shape": [size], "data_offsets": [number * size, (number + 1) * size]}
        for number in range(most + 10)
    }
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + len(header) * size)
    reader = dmabuf_dio._native._Reader(dmabuf_dio.Model(path))
    # Out of the file's order, so that nothing is loaded
    found = [reader.get(number * 5003 % len(header), True)[1] for number in range(len(header))]
    assert [type(memory).__name__ for memory in found] == ["_Mapped"] * most + ["bytearray"] * 10
    found.pop(0)
    assert type(reader.get(0, True)[1]).__name__ == "_Mapped"
    path.unlink()


def test_ranges_beyond_a_tensor_are_refused(many: tuple[Path, dict[str, Any]]) -> None:
    path, _ = many
    model = dmabuf_dio.Model(path)
    reader, size = dmabuf_dio._native._Reader(model), model["000"].nbytes
    elements = size // 4
    for start, end in ((9, 5), (0, elements + 1), (elements - (64 << 10), elements + (64 << 10))):
        for maps in (True, False):
            refused(ValueError, "exceeds it", reader.part, 0, [(start, end)], maps)


def test_memory_goes_with_its_tensor(folder: Path) -> None:
    """In a process of its own: a loop that drops tensors, a dictionary of which one is left, and one that keeps all."""
    path = folder / "large.safetensors"
    size, count = 4 << 20, 48
    safetensors.numpy.save_file({f"{number:02}": np.full(size, number, np.uint8) for number in range(count)}, path)
    program = """
import os, sys, dmabuf_dio, dmabuf_dio.numpy
def anonymous():
    return int(next(line for line in open("/proc/self/status") if line.startswith("RssAnon")).split()[1]) << 10
def drop():
    file = os.open(sys.argv[1], os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
def check(number, array):
    assert array.min() == array.max() == int(number), number
drop()
window, peaks = 16 << 20, {}
for way in ("get_tensor", "get_slice", "iter_tensors"):
    before = peak = anonymous()
    if way == "iter_tensors":
        items = ((name, tensor.numpy()) for name, tensor in dmabuf_dio.iter_tensors(sys.argv[1], window=window))
    else:
        file = dmabuf_dio.safe_open(sys.argv[1], "np", window=window)
        slices = {name: file.get_slice(name) for name in file.keys()} if way == "get_slice" else None
        items = ((name, slices[name][...] if slices else file.get_tensor(name)) for name in file.offset_keys())
    for name, array in items:
        check(name, array)
        peak = max(peak, anonymous())
        del array
        drop()
    peaks[way] = peak - before
arrays = dmabuf_dio.numpy.load_file(sys.argv[1])
[check(*item) for item in arrays.items()]
before = anonymous()
kept = arrays.pop("20")
arrays.clear()
peaks["freed"] = before - anonymous()
check("20", kept)
print(peaks)
"""
    done = subprocess.run([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True, check=True)
    peaks = eval(done.stdout)
    for way in ("get_tensor", "get_slice", "iter_tensors"):
        assert size <= peaks[way] <= (16 << 20) + 2 * size + (16 << 20), peaks
    assert peaks["freed"] >= (count - 2) * size, peaks


def test_tensors_come_one_by_one(model: Path, many: tuple[Path, dict[str, Any]], arrays: dict[str, Any]) -> None:
    found = dict(dmabuf_dio.iter_tensors(model))
    assert list(found) == dmabuf_dio.open(model).keys()
    for name, tensor in found.items():
        assert tensor.numpy().tobytes() == arrays[name].tobytes() and tensor.shape == arrays[name].shape
        if tensor.nbytes:
            assert tensor.buffer is not None and tensor.buffer.kind == "private" and tensor.buffer.writable
            assert np.array_equal(np.from_dlpack(tensor), arrays[name])
    path, arrays = many
    names = ["090", "003", "050", "003"]
    given = dmabuf_dio.iter_tensors(dmabuf_dio.open(path), only=names, order="given", window=0)
    assert [(name, tensor.numpy()[0]) for name, tensor in given] == [("090", 90), ("003", 3), ("050", 50)]
    assert [name for name, _ in dmabuf_dio.iter_tensors(path, only=iter(names))] == ["003", "050", "090"]
    refused(KeyError, "x", dmabuf_dio.iter_tensors, path, only=["x"])
    refused(ValueError, "order", dmabuf_dio.iter_tensors, path, order="name")
    # One that is not used to its end
    for name, _ in dmabuf_dio.iter_tensors(path):
        if name == "010":
            break


def test_truncated_file_gives_no_tensors(folder: Path, arrays: dict[str, Any]) -> None:
    path = folder / "cut.safetensors"
    safetensors.numpy.save_file(arrays, path)
    whole = path.read_bytes()
    with dmabuf_dio.safe_open(path, "np") as file:
        with path.open("r+b") as writer:
            writer.truncate(len(whole) - 8192)
        for _ in range(2):
            refused(ValueError, "exceeds the file", file.get_tensors)
        # Tensors requested after that are read again.
        path.write_bytes(whole)
        found = file.get_tensors()
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())


def test_models_of_several_files_open(folder: Path) -> None:
    shards = folder / "several"
    shards.mkdir()
    weights = {f"{name}.safetensors": {name: ("U8", [3], name.encode() * 3)} for name in "ab"}
    models.index(shards, weights)
    with dmabuf_dio.safe_open(shards, "np") as file:
        assert {name: array.tobytes() for name, array in file.get_tensors().items()} == {"a": b"aaa", "b": b"bbb"}


def test_threads_share_a_file(model: Path, arrays: dict[str, Any]) -> None:
    with dmabuf_dio.safe_open(model, framework="np") as file:
        slices = {name: file.get_slice(name) for name in arrays}
        with ThreadPoolExecutor(8) as pool:
            found = pool.map(lambda name: (name, slices[name][...]), list(arrays) * 20)
            assert all(np.array_equal(array, arrays[name]) for name, array in found)


def test_errors_match_safetensors(model: Path, folder: Path) -> None:
    broken = folder / "broken.safetensors"
    broken.write_bytes(b"\x01\x02")
    for open_ in (dmabuf_dio.safe_open, safetensors.safe_open):
        with pytest.raises(SafetensorError):
            open_(broken, framework="np")
        refused(SafetensorError, "framework", open_, model, framework="x")
        refused(SafetensorError, "backend", open_, model, framework="np", backend="x")
        refused(SafetensorError, "invalid", open_, model, framework="np", device="x")
        refused(SafetensorError, "not supported for framework numpy", open_, model, framework="np", device="cuda:0")
        with pytest.raises(FileNotFoundError):
            open_(folder / "missing", framework="np")
        with pytest.raises(SafetensorError, match="does not contain tensor x"):
            open_(model, framework="np").get_tensor("x")


@pytest.fixture
def program() -> Iterator[types.ModuleType]:
    """A module that has imported the names, as programs do."""
    module = types.ModuleType("a_program")
    exec(
        "import safetensors\nfrom safetensors import safe_open\nfrom safetensors.numpy import load_file as load",
        module.__dict__,
    )
    sys.modules["a_program"] = module
    yield module
    del sys.modules["a_program"]


def test_install_replaces_and_uninstall_restores(model: Path, program: types.ModuleType, arrays: dict[str, Any]) -> None:
    names = [
        (safetensors, "safe_open"),
        (safetensors.numpy, "safe_open"),
        (safetensors.numpy, "load_file"),
        (program, "safe_open"),
        (program, "load"),
    ]
    before = [getattr(module, name) for module, name in names]
    public = dmabuf_dio.safe_open
    dmabuf_dio.install()
    dmabuf_dio.install()
    try:
        for (module, name), original in zip(names, before, strict=True):
            assert getattr(module, name) is not original, (module, name)
        with program.safe_open(model, framework="np") as file:
            assert isinstance(file, public)
            assert np.array_equal(file.get_tensor("b"), arrays["b"])
        loaded = program.load(model)
        assert list(loaded) == list(dmabuf_dio.numpy.load_file(model))
        assert all(np.array_equal(loaded[name], array) for name, array in arrays.items())
        # A module that is imported meanwhile.
        late = types.ModuleType("late_program")
        exec("from safetensors import safe_open", late.__dict__)
        sys.modules["late_program"] = late
        # Files for other frameworks are left to safetensors.
        refused(SafetensorError, "framework", program.safe_open, model, framework="x")
    finally:
        dmabuf_dio.uninstall()
    assert [getattr(module, name) for module, name in names] == before
    assert sys.modules.pop("late_program").safe_open is before[0]
    assert dmabuf_dio.safe_open is public
    dmabuf_dio.uninstall()
    assert [getattr(module, name) for module, name in names] == before


def facade() -> types.ModuleType:
    """As much of torch as the loader needs, by NumPy."""
    torch = types.ModuleType("torch")
    names = ("float32", "int64", "bool", "float64", "int8", "uint8", "frombuffer", "empty")
    torch.__dict__.update({name: getattr(np, name) for name in names})
    return torch


def test_vllm_plugin_loads_a_model(folder: Path, monkeypatch: pytest.MonkeyPatch, arrays: dict[str, Any]) -> None:
    """The plugin, against a stub of vLLM's loaders. tests/consumers/vllm has it with vLLM's own."""
    registered: dict[str, Any] = {}
    shards = folder / "vllm"
    shards.mkdir()

    class BaseModelLoader:
        def __init__(self, load_config: object) -> None:
            self.load_config = load_config

    def register_model_loader(name: str) -> Any:
        def add(loader: type) -> type:
            assert issubclass(loader, BaseModelLoader)
            registered[name] = loader
            return loader

        return add

    stubs: dict[str, dict[str, object]] = {
        "vllm": {},
        "vllm.model_executor": {},
        "vllm.model_executor.model_loader": {"register_model_loader": register_model_loader},
        "vllm.model_executor.model_loader.base_loader": {"BaseModelLoader": BaseModelLoader},
        "vllm.model_executor.model_loader.weight_utils": {
            "download_weights_from_hf": lambda model, cache, patterns, revision, ignore_patterns: str(shards),
        },
    }
    for name, content in stubs.items():
        module = types.ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "torch", facade())
    monkeypatch.delitem(sys.modules, "dmabuf_dio._as_torch", raising=False)

    names = {name: f"model-{number // 2}.safetensors" for number, name in enumerate(arrays)}
    for shard in set(names.values()):
        safetensors.numpy.save_file({name: arrays[name] for name in arrays if names[name] == shard}, shards / shard)
    (shards / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))

    [plugin] = [one for one in entry_points(group="vllm.general_plugins") if one.value.startswith("dmabuf_dio")]
    plugin.load()()
    plugin.load()()
    config = types.SimpleNamespace(model_loader_extra_config={}, download_dir=None, ignore_patterns=[])
    loader = registered["dmabuf-dio"](config)

    def check(model_config: object) -> None:
        found: dict[str, Any] = {}
        loader.download_model(model_config)
        loader.load_weights(types.SimpleNamespace(load_weights=found.update, parameters=lambda: iter(())), model_config)
        assert set(found) == set(arrays)
        assert all(np.array_equal(found[tensor], array) for tensor, array in arrays.items())

    # A folder on this machine, and a name of a hub.
    for name in (str(shards), "organisation/model"):
        check(types.SimpleNamespace(model=name, revision=None))
    with serving() as store:
        for name, value in store.environment().items():
            monkeypatch.setenv(name, value)
        store.files = {f"/bucket/model/{path.name}": path.read_bytes() for path in shards.iterdir()}
        check(types.SimpleNamespace(model="s3://bucket/model/", revision=None))
        # As vLLM does it for s3://: what is no weight was downloaded.
        check(types.SimpleNamespace(model="/tmp/config", model_weights="s3://bucket/model", revision=None))
    with pytest.raises(ValueError, match="extra_config"):
        registered["dmabuf-dio"](types.SimpleNamespace(model_loader_extra_config={"x": 1}))
    monkeypatch.undo()
    sys.modules.pop("dmabuf_dio._as_torch", None)
