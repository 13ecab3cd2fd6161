# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic
# mypy: disable-error-code="misc, assignment, call-arg"
"""The drop-in in comparison with safetensors; torch is in tests/consumers."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import random
import struct
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from safetensors import SafetensorError

import dmabuf_dio
import dmabuf_dio.numpy

TENSOR = '"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}'


def entry(**parts: str) -> str:
    known = {"dtype": '"U8"', "shape": "[1]", "data_offsets": "[0,1]"} | parts
    return '{"a":{' + ",".join(f'"{name}":{value}' for name, value in known.items() if value) + "}}"


HEADERS: dict[str, tuple[str, bytes]] = {
    "no metadata": (f"{{{TENSOR}}}", b"ab"),
    "null header": ("null", b""),
    "no header": ("", b""),
    "blank header": ("   ", b""),
    "a list": ("[]", b""),
    "no tensors": ("{}", b""),
    "no tensors, data": ("{}", b"a"),
    "metadata alone": ('{"__metadata__":{"a":"b"}}', b""),
    "empty metadata alone": ('{"__metadata__":{}}', b""),
    "null metadata alone": ('{"__metadata__":null}', b""),
    "blanks": (f"{{{TENSOR}}}     ", b"ab"),
    "nul bytes": (f"{{{TENSOR}}}\0\0", b"ab"),
    "null tensor": (f'{{{TENSOR},"b":null}}', b"ab"),
    "empty tensor": (f'{{{TENSOR},"b":{{}}}}', b"ab"),
    "empty name": ('{"":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}', b"ab"),
    "no dimensions": (entry(shape="[]"), b"a"),
    "a dimension of 0": (entry(shape="[0]", data_offsets="[0,0]"), b""),
    "dimensions and 0": (entry(shape="[3,0,2]", data_offsets="[0,0]"), b""),
    "nothing between": (
        '{"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"F32","shape":[3,0],"data_offsets":[1,1]},'
        '"c":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}',
        b"xy",
    ),
    **{f"metadata {text}": (f'{{"__metadata__":{text},{TENSOR}}}', b"ab")
       for text in ("{}", "null", "[]", '""', "false", '{"k":null}', '{"k":1}', '{"k":""}', '{"":"v"}', '{"k":[]}')},
    "metadata twice": (f'{{"__metadata__":{{}},"__metadata__":{{"a":"b"}},{TENSOR}}}', b"ab"),
    "metadata twice, null": (f'{{"__metadata__":null,"__metadata__":{{"a":"b"}},{TENSOR}}}', b"ab"),
    **{f"{part} {text or 'absent'}": (entry(**{part: text}), b"a")
       for part in ("dtype", "shape", "data_offsets") for text in ("", "null", "[]", "{}", '""')},
}  # fmt: skip


def found(open_: Any, path: Path) -> object:
    try:
        with open_(path, "np") as file:
            names = file.offset_keys()
            arrays = [file.get_tensor(name) for name in names]
            return (
                file.metadata(),
                file.keys(),
                names,
                [(str(array.dtype), array.shape, array.tobytes()) for array in arrays],
                [(piece.get_dtype(), piece.get_shape()) for piece in map(file.get_slice, names)],
                list(file.get_tensors()),
            )
    except SafetensorError:
        return SafetensorError


@pytest.mark.parametrize("name", HEADERS)
def test_unusual_headers_read_as_by_safetensors(name: str, folder: Path) -> None:
    header, data = HEADERS[name]
    path = folder / "header.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + data)
    assert found(dmabuf_dio.safe_open, path) == found(safetensors.safe_open, path)


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    path = folder / "alike.safetensors"
    arrays = {
        "w": np.arange(12, dtype=np.float32).reshape(3, 4),
        "large": np.arange(3 << 19, dtype=np.float32).reshape(3, -1),
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3), np.int8),
        "bool": np.array([True, False, True]),
    }
    safetensors.numpy.save_file(arrays, path)
    return path


SLICES = ["[0]", "[-1]", "[0:1]", "[1:]", "[...]", "[:]", "[::2]", "[1:3:2]", "[:,1:3]", "[1,2:4]", "[2:,::3]", "[...,0]", "[()]"]


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_in_place_changes_reach_no_later_request(model: Path, backend: str) -> None:
    """Returned arrays are changed; later requests return the same as safetensors."""

    def asked(file: Any) -> Iterator[Callable[[], Any]]:
        for name in file.keys():
            yield lambda name=name: file.get_tensor(name)
        for name in ("w", "large"):
            for index in SLICES:
                yield lambda name=name, index=index: eval(f"file.get_slice(name){index}", {"file": file, "name": name})
        for name in file.keys():
            yield lambda name=name: file.get_tensors()[name]

    facts: list[list[object]] = []
    for open_ in (dmabuf_dio.safe_open, safetensors.safe_open):
        with open_(model, "np", backend=backend) as file:
            facts.append([])
            kept = []
            for request in [*asked(file), *asked(file)]:
                array = request()
                facts[-1].append((array.shape, array.dtype, array.flags.writeable, array.tobytes()))
                kept.append(array)
                array[...] = 1 if array.dtype == np.bool_ else -7
            # Returned arrays do not share memory.
            facts[-1].append(sum(np.may_share_memory(a, b) for n, a in enumerate(kept) for b in kept[:n] if a.size < 99))
    assert facts[0] == facts[1]


def installed(work: Callable[[], Any]) -> Any:
    dmabuf_dio.install()
    try:
        return work()
    finally:
        dmabuf_dio.uninstall()


def looks(what: Any) -> list[object]:
    """What a program can see of a function, class or object."""
    kind: Any = type(what)
    names = ("__name__", "__qualname__", "__module__", "__doc__")
    seen: list[object] = [getattr(what, name, None) for name in names if callable(what)]
    seen += [kind.__name__, kind.__qualname__, kind.__module__] if not isinstance(what, type) else []
    for attempt in (lambda: str(signature(what)), lambda: pickle.loads(pickle.dumps(what)) is what):
        try:
            seen.append(attempt())
        except Exception as error:
            seen.append(type(error))
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        try:
            attempt(what)
            seen.append("done")
        except TypeError as error:
            seen.append(str(error))
        except Exception as error:
            seen.append(type(error))
    return seen


def test_installed_objects_look_like_the_originals(model: Path) -> None:
    originals = [safetensors.safe_open]

    def all_looks() -> list[object]:
        file: Any = safetensors.safe_open(model, "np")
        piece = file.get_slice("w")
        seen: list[object] = [looks(what) for what in (safetensors.safe_open, safetensors.numpy.load_file, file, piece)]
        for what, methods in (
            (file, ("get_tensor", "get_tensors", "get_slice", "keys", "offset_keys", "metadata")),
            (safetensors.safe_open, ("get_tensor", "keys")),
        ):
            for method in methods:
                bound = getattr(what, method)
                seen.append([bound.__name__, bound.__qualname__, bound.__doc__, str(signature(bound))])
        seen.append([repr(what).split(" at 0x")[0] for what in (file, piece, safetensors.safe_open)])
        seen.append([isinstance(file, safetensors.safe_open), isinstance(file, originals[0])])
        try:
            type("Derived", (safetensors.safe_open,), {})
        except TypeError as error:
            seen.append([str(error)])
        return seen

    before: Any = originals[0](model, "np")
    ours, theirs = installed(all_looks), all_looks()
    assert ours == theirs
    assert installed(lambda: isinstance(before, safetensors.safe_open))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_process_pools_load_with_installed_functions(model: Path, method: str) -> None:
    """Functions and what they return are pickled; a spawned child has the originals."""
    theirs = safetensors.numpy.load_file(model)

    def run() -> Any:
        with multiprocessing.get_context(method).Pool(2) as pool:
            return pool.map_async(safetensors.numpy.load_file, [model] * 3).get(300)

    for arrays in installed(run):
        assert list(arrays) == list(theirs)
        assert all(np.array_equal(arrays[name], array) for name, array in theirs.items())


def test_small_tensor_takes_one_read(folder: Path) -> None:
    """Of many in any order: no load is set up, no file is opened, nothing else is read."""
    path = folder / "many-small.safetensors"
    count, size = 20_000, 64
    safetensors.numpy.save_file({f"{number:05}": np.full(size, number % 251, np.uint8) for number in range(count)}, path)
    names = random.Random(3).sample(range(count), 3000)

    def moved() -> tuple[int, int]:
        facts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(facts["syscr"]), int(facts["rchar"])

    with dmabuf_dio.safe_open(path, "np") as file:
        for order in (names, range(5000), range(count - 1, count - 3000, -1)):
            file.get_tensor("00007")
            threads = os.listdir("/proc/self/task")
            calls, read = moved()
            for number in order:
                array = file.get_tensor(f"{number:05}")
                assert array[0] == array[-1] == number % 251
            calls, read = moved()[0] - calls, moved()[1] - read
            # Reading the counters counts, too.
            assert calls <= len(order) + 4, (calls, len(order))
            assert read <= len(order) * size + 4096
            assert os.listdir("/proc/self/task") == threads


def test_a_slice_of_a_large_tensor_reads_its_rows(folder: Path) -> None:
    path = folder / "rows.safetensors"
    safetensors.numpy.save_file({"w": np.arange(8 << 20, dtype=np.uint32).reshape(1024, -1)}, path)
    row = 4 * (8 << 10)
    with dmabuf_dio.safe_open(path, "np") as file:
        piece = file.get_slice("w")
        assert piece[0].nbytes == row
        before = int(Path("/proc/self/io").read_text().split()[1])
        for number in range(0, 1000, 37):
            assert piece[number][0] == number << 13
            assert piece[-number - 2 : -number - 1, :5].tolist() == [[(1022 - number << 13) + column for column in range(5)]]
        read = int(Path("/proc/self/io").read_text().split()[1]) - before
        assert read <= 2 * 28 * row + 4096
