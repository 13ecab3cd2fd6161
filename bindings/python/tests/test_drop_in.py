# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic
"""The replacements of safetensors' own functions; without torch, which tests/consumers has."""

from __future__ import annotations

import json
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
from helpers import refused

import dmabuf_dio
import dmabuf_dio.numpy
from dmabuf_dio import _lazy


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


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[list[str] | None]:
    """What every load was asked for. Nothing is in the page cache, and 4000 bytes are worth a load."""
    monkeypatch.setattr(_lazy, "WORTH_A_LOAD", 4000)
    monkeypatch.setattr(_lazy, "WORTH_A_LOAD_ALONE", 4000)
    monkeypatch.setattr(_lazy, "ALONE", 0)
    told: list[list[str] | None] = []
    opened = dmabuf_dio.Model

    class Watched:
        def __init__(self, path: Any) -> None:
            self.model = opened(path)

        def __getitem__(self, name: str) -> Any:
            return self.model[name]

        def __getattr__(self, name: str) -> Any:
            return getattr(self.model, name)

        def load(self, *, only: list[str] | None, **options: Any) -> Any:
            told.append(only)
            return self.model.load(only=only, **options)

        def _small(self, number: int, most: int, around: bool) -> Any:
            info, found = self.model._small(number, most, around)
            return info, found if info.nbytes < most else None

        def _load_with(self, make: Any) -> Any:
            told.append(None)
            return self.model._load_with(make)

    monkeypatch.setattr("dmabuf_dio._safe_open.Model", Watched)
    return told


def test_only_requested_tensors_are_loaded(folder: Path, loads: list[list[str] | None]) -> None:
    path = folder / "many.safetensors"
    arrays = {f"{number:03}": np.full(1000, number, np.int32) for number in range(100)}
    safetensors.numpy.save_file(arrays, path)

    with dmabuf_dio.safe_open(path, "np") as file:
        for name in ("050", "010", "050", "099"):
            assert np.array_equal(file.get_tensor(name), arrays[name])
        # No memory is handed out twice.
        assert loads == [["050"], ["010"], ["050"], ["099"]]
        loads.clear()
        assert {name: array[0] for name, array in file.get_tensors().items()} == {
            name: array[0] for name, array in arrays.items()
        }
        assert loads == [None]

    # In the order of the file: a few loads, and never more than twice what was asked for
    loads.clear()
    with dmabuf_dio.safe_open(path, "np") as file:
        for number, name in enumerate(file.offset_keys()):
            assert np.array_equal(file.get_tensor(name), arrays[name])
            assert sum(len(names or ()) for names in loads) <= 2 * (number + 1)
    assert len(loads) == 7
    assert sorted(name for names in loads for name in names or ()) == list(arrays)

    # Slices: their rows; for torch: those that live, together
    loads.clear()
    with dmabuf_dio.safe_open(path, "np") as file:
        slices = {name: file.get_slice(name) for name in arrays}
        assert all(np.array_equal(piece[5:9], arrays[name][5:9]) for name, piece in slices.items())
        assert loads == []
        shared = _lazy.Lazy(file._opened().model, shares=True)
    kept = [_lazy.HasName() for _ in range(20)]
    for piece, name in zip(kept, arrays, strict=False):
        piece.name = name
        shared.announce(piece)
    for piece in kept:
        memory, is_part = shared.sliced(piece.name, shared.info(piece.name), (5, 9))
        assert not is_part and bytes(memory) == arrays[piece.name].tobytes()
    assert [sorted(names or ()) for names in loads] == [list(arrays)[:20]]


class Late(Exception):
    pass


def test_arrays_are_made_while_the_file_is_read(folder: Path) -> None:
    path = folder / "early.safetensors"
    arrays = {f"{number:03}": np.full(100_000 + number, number, np.int32) for number in range(50)}
    safetensors.numpy.save_file(arrays, path)
    model = dmabuf_dio.Model(path)

    def make(tensors: dmabuf_dio.Tensors) -> Any:
        [buffer] = tensors.buffers
        assert (buffer.kind, buffer.writable, buffer.report) == ("private", True, None)
        return {name: tensor.numpy() for name, tensor in tensors.items()}

    made: Any = model._load_with(make)
    assert list(made) == list(arrays)
    assert all(np.array_equal(made[name], array) for name, array in arrays.items())

    # An exception ends the load.
    def fail(tensors: dmabuf_dio.Tensors) -> Any:
        raise Late(tensors)

    raised = refused(Late, "", model._load_with, fail)
    # Its memory stays as long as it.
    tensors = raised.args[0]
    assert memoryview(tensors["000"]).nbytes == arrays["000"].nbytes


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


def test_a_model_of_several_files_is_loaded_first(folder: Path) -> None:
    shards = folder / "several"
    shards.mkdir()
    weights = {f"{name}.safetensors": {name: ("U8", [3], name.encode() * 3)} for name in "ab"}
    models.index(shards, weights)

    def never(tensors: dmabuf_dio.Tensors) -> None:
        raise AssertionError(tensors)

    model = dmabuf_dio.Model(shards)
    assert model._load_with(never) is None
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

    # A folder on this machine, and a name of a hub.
    for name in (str(shards), "organisation/model"):
        found: dict[str, Any] = {}
        model_config = types.SimpleNamespace(model=name, revision=None)
        loader.download_model(model_config)
        loader.load_weights(types.SimpleNamespace(load_weights=found.update), model_config)
        assert set(found) == set(arrays)
        assert all(np.array_equal(found[tensor], array) for tensor, array in arrays.items())
    with pytest.raises(ValueError, match="extra_config"):
        registered["dmabuf-dio"](types.SimpleNamespace(model_loader_extra_config={"x": 1}))
    monkeypatch.undo()
    sys.modules.pop("dmabuf_dio._as_torch", None)
