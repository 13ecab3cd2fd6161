# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic
"""Parts of tensors: slices of columns, and what each rank reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from helpers import drop_cache, refused, run

import dmabuf_dio

INDEXES = [
    np.s_[:, 100:200],
    np.s_[:, :1],
    np.s_[:, -1],
    np.s_[..., 3000:],
    np.s_[3:1000:7, 5:900:3],
    np.s_[-1, 4:8],
    np.s_[5, ...],
    np.s_[10:20],
    np.s_[::2],
    np.s_[900:100, 3:4],
    np.s_[:, 7:7],
    np.s_[1000, 4000],
    np.s_[:, 1:],
    np.s_[...],
    np.s_[()],
]


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "layer.0.q.weight": rng.integers(0, 1 << 16, (1024, 4096), np.uint16),
        "layer.0.o.weight": rng.integers(0, 1 << 16, (512, 8192), np.uint16),
        "layer.0.qkv.weight": rng.integers(0, 1 << 16, (96, 64), np.uint16),
        "experts": rng.integers(0, 255, (4, 8, 1000), np.uint8),
        "norm": rng.integers(0, 255, 100, np.uint8),
    }


@pytest.fixture(scope="module")
def model(folder: Path, arrays: dict[str, Any]) -> Path:
    path = folder / "parts.safetensors"
    safetensors.numpy.save_file(arrays, path)
    return path


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("index", INDEXES, ids=repr)
def test_slices_match_safetensors(model: Path, index: Any, cached: bool) -> None:
    with dmabuf_dio.safe_open(model, "np") as ours, safetensors.safe_open(model, "np") as theirs:
        name = "layer.0.q.weight"
        expected = theirs.get_slice(name)[index] if index != np.s_[:, 7:7] and index != np.s_[900:100, 3:4] else None
        if cached:
            theirs.get_tensor(name)
        else:
            drop_cache(model)
        found = ours.get_slice(name)[index]
        whole = theirs.get_tensor(name)
        expected = whole[index] if expected is None else expected
        assert found.shape == expected.shape and found.tobytes() == expected.tobytes()
        found[...] = 0
        assert ours.get_slice(name)[index].tobytes() == expected.tobytes()


def test_columns_are_read_without_the_others(model: Path, arrays: dict[str, Any]) -> None:
    drop_cache(model)
    with dmabuf_dio.safe_open(model, "np") as file:
        # Strips of 512 bytes, 16 KiB from one to the next
        found = file.get_slice("layer.0.o.weight")[:, 256:512]
        assert np.array_equal(found, arrays["layer.0.o.weight"][:, 256:512])
        report = file.report()
        assert report["requested"] == found.nbytes and report["read"] <= 512 * 8192, report


def test_columns_are_read_where_no_memfd_can_be_made(model: Path) -> None:
    program = """
import numpy, resource, safetensors.numpy, sys
import dmabuf_dio
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
name = "layer.0.o.weight"
with dmabuf_dio.safe_open(sys.argv[1], "np") as file:
    part = file.get_slice(name)[:, 256:512]
    assert file.report()["reads"] == 1
found = dict(dmabuf_dio.iter_tensors(sys.argv[1], shard=(1, 2), split={name: "columns"}))
whole = safetensors.numpy.load_file(sys.argv[1])[name]
assert numpy.array_equal(part, whole[:, 256:512])
assert numpy.array_equal(found[name].numpy(), whole[:, 4096:])
"""
    drop_cache(model)
    run(program, model)


LLAMA = {
    "*.q.weight": "rows",
    "*.o.weight": "columns",
    "*.qkv.weight": (0, [64, 16, 16]),
    "experts": -1,
}


def ranks(path: Path, world: int, **options: Any) -> list[dict[str, Any]]:
    return [
        {name: tensor.numpy() for name, tensor in dmabuf_dio.iter_tensors(path, shard=(rank, world), **options)}
        for rank in range(world)
    ]


@pytest.mark.parametrize("window", [None, 0, 1 << 20])
def test_ranks_read_their_parts(model: Path, arrays: dict[str, Any], window: int | None) -> None:
    drop_cache(model)
    found = ranks(model, 4, split=LLAMA, window=window)
    whole = {name: [rank[name] for rank in found] for name in arrays}
    assert np.array_equal(np.concatenate(whole["layer.0.q.weight"]), arrays["layer.0.q.weight"])
    assert np.array_equal(np.concatenate(whole["layer.0.o.weight"], 1), arrays["layer.0.o.weight"])
    assert np.array_equal(np.concatenate(whole["experts"], 2), arrays["experts"])
    sections = np.split(arrays["layer.0.qkv.weight"], [64, 80])
    for rank, part in enumerate(whole["layer.0.qkv.weight"]):
        assert np.array_equal(part, np.concatenate([np.split(section, 4)[rank] for section in sections]))
    assert all(np.array_equal(part, arrays["norm"]) for part in whole["norm"])


def test_functions_and_slices_divide(model: Path, arrays: dict[str, Any]) -> None:
    def split(name: str, shape: tuple[int, ...]) -> Any:
        assert shape == arrays[name].shape
        return ("columns", [slice(10), slice(40, 50)]) if name.endswith("qkv.weight") else None

    names = ["norm", "layer.0.qkv.weight"]
    found = dict(dmabuf_dio.iter_tensors(model, only=names, order="given", shard=(1, 2), split=split))
    assert list(found) == names
    tensor, array = found["layer.0.qkv.weight"], arrays["layer.0.qkv.weight"]
    assert tensor.shape == (96, 20) and tensor.nbytes == 96 * 20 * 2
    assert np.array_equal(tensor.numpy(), np.concatenate([array[:, :10], array[:, 40:50]], 1))
    assert memoryview(tensor).nbytes == tensor.nbytes


def test_patterns_are_those_of_the_model(model: Path, arrays: dict[str, Any]) -> None:
    # Neither what is left out nor what an earlier pattern has is unknown.
    layout = {"layer.?.q.weight": "rows", "layer.0.o.weight": "columns", "*.weight": "rows", "nor[m]": "rows", "*": "columns"}
    found = dict(dmabuf_dio.iter_tensors(model, only=["norm", "layer.0.o.weight"], shard=(1, 2), split=layout))
    assert np.array_equal(found["norm"].numpy(), arrays["norm"][50:])
    assert np.array_equal(found["layer.0.o.weight"].numpy(), arrays["layer.0.o.weight"][:, 4096:])
    layout = {"*": "rows", "norm": "columns"}
    found = dict(dmabuf_dio.iter_tensors(model, only=["norm"], shard=(0, 2), split=layout))
    assert np.array_equal(found["norm"].numpy(), arrays["norm"][:50])


def test_a_rule_for_each_tensor_by_its_name_takes_no_search(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "many.safetensors"
    safetensors.numpy.save_file({f"t{number}": np.arange(4, dtype=np.uint8) for number in range(100)}, path)
    tried: list[str] = []

    class Pattern:
        def match(self, name: str) -> bool:
            tried.append(name)
            return False

    monkeypatch.setattr("dmabuf_dio._cuts.re.compile", lambda pattern: Pattern())
    names = {name: "rows" for name in dmabuf_dio.open(path).keys()}
    found = dict(dmabuf_dio.iter_tensors(path, shard=(1, 2), split=names))
    assert len(found) == 100 and found["t99"].numpy().tolist() == [2, 3] and not tried


@pytest.mark.parametrize(
    ("match", "options"),
    [
        ("needs both", {"shard": (0, 2)}),
        ("needs both", {"split": {}}),
        ("rank 2 of 2", {"shard": (2, 2), "split": {}}),
        ("rank 0 of 0", {"shard": (0, 0), "split": {}}),
        ("cannot be divided by 3", {"shard": (0, 3), "split": {"*.q.weight": "rows"}}),
        ("no such dimension", {"shard": (0, 2), "split": {"norm": "columns"}}),
        ("no such dimension", {"shard": (0, 2), "split": {"norm": -2}}),
        ("named as split= says: *.k.weight", {"shard": (0, 2), "split": {"norm": None, "*.k.weight": "rows"}}),
        ('"diagonals"', {"shard": (0, 2), "split": {"norm": "diagonals"}}),
        ("its sections 90", {"shard": (0, 2), "split": {"norm": (0, [40, 50])}}),
        ("sizes and slices", {"shard": (0, 2), "split": {"norm": (0, [40, slice(50)])}}),
        ("a step", {"shard": (0, 2), "split": {"norm": (0, [slice(0, 10, 2)])}}),
        ("follow", {"shard": (0, 2), "split": {"norm": (0, [slice(5, 10), slice(0, 5)])}}),
        ("neither sizes nor slices", {"shard": (0, 2), "split": {"norm": (0, [])}}),
        ("no such sections", {"shard": (0, 2), "split": {"norm": (0, [-8, 108])}}),
        ("no such sections", {"shard": (0, 2), "split": {"norm": (0, [1 << 65])}}),
        ("from 0", {"shard": (-1, 2), "split": {}}),
        ("from 0", {"shard": [0, 2], "split": {}}),
        ("from 0", {"shard": 3, "split": {}}),
    ],
)
def test_what_cannot_be_divided_is_refused(model: Path, match: str, options: dict[str, Any]) -> None:
    error = refused(ValueError, match.replace("*", r"\*"), dmabuf_dio.iter_tensors, model, **options)
    said = "needs both" in match or "from 0" in match or "diagonals" in match
    assert said or len(error.__notes__) == 1, "what to do"


@pytest.mark.parametrize(
    "rule",
    [["rows", [50, 50]], ("rows",), ("rows", 100), ("rows", slice(50)), 0.5, (0, [None]), (0, [0.5]), (0, [slice("a")])],
    ids=repr,
)
def test_what_is_no_rule_is_refused(model: Path, rule: Any) -> None:
    for split in ({"norm": rule}, lambda name, shape: rule):
        error = refused(TypeError, "split= has no rule", dmabuf_dio.iter_tensors, model, shard=(0, 2), split=split)
        assert "a rule is" in error.__notes__[0]
    for wrong in ("rows", [("*", "rows")], rule):
        error = refused(TypeError, "neither a dict nor", dmabuf_dio.iter_tensors, model, shard=(0, 2), split=wrong)
        assert "PATTERN" in error.__notes__[0]
