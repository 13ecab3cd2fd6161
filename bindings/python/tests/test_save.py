# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic, reportPrivateUsage=false
"""save_file() beside that of safetensors: the same bytes, or the old file; torch is in tests/consumers."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from helpers import refused, run
from safetensors import SafetensorError

import dmabuf_dio
import dmabuf_dio.numpy
from dmabuf_dio._save import _TYPES

RANDOM = np.random.default_rng(5)
NAMES = ["bool", "int8", "uint8", "int16", "uint16", "float16", "int32", "uint32", "float32", "int64", "uint64", "float64",
         "complex64"]  # fmt: skip


def array(dtype: Any, *shape: int) -> Any:
    size = np.dtype(dtype).itemsize
    data = RANDOM.integers(0, 2, (*shape, size), dtype=np.uint8)
    return data.view(dtype).reshape(shape)


def both(folder: Path, arrays: dict[str, Any], metadata: dict[str, str] | None = None) -> tuple[bytes, bytes]:
    """The files that this package and safetensors write."""
    ours, theirs = folder / "ours.safetensors", folder / "theirs.safetensors"
    report = dmabuf_dio.numpy.save_file(arrays, ours, metadata)
    safetensors.numpy.save_file(arrays, theirs, metadata)
    assert report.operation == "save" and report.bytes == ours.stat().st_size
    return ours.read_bytes(), theirs.read_bytes()


def are_alike(folder: Path, arrays: dict[str, Any], metadata: dict[str, str] | None = None) -> bool:
    """Whether these are equal. Not to be shown, which takes long."""
    ours, theirs = both(folder, arrays, metadata)
    return ours == theirs


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}, {"ключ": '"\\\n'}])
def test_files_are_those_of_safetensors(folder: Path, metadata: dict[str, str] | None) -> None:
    arrays = {f"{name} {kind}": array(name, *shape) for name in NAMES
              for kind, shape in {"some": (3, 5), "none": (0, 4), "scalar": ()}.items()}  # fmt: skip
    arrays |= {f"swapped {name}": array(name, 7).astype(np.dtype(name).newbyteorder(">")) for name in NAMES}
    arrays |= {"größe": array("float32", 2), "\U0001f600\0\n": array("uint8", 3), "": array("int16", 1)}
    # Longer than the window, and nowhere aligned.
    arrays["long"] = array("uint8", (70 << 20) + 3)
    arrays["other"] = arrays["long"][1:-1]
    assert are_alike(folder, arrays, metadata)
    found = dmabuf_dio.numpy.load_file(folder / "ours.safetensors")
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[name], one) and found[name].dtype == one.dtype.newbyteorder("=")
               for name, one in arrays.items())  # fmt: skip


def test_many_small_arrays_are_saved(folder: Path) -> None:
    arrays = {f"layer.{number}": array(NAMES[number % len(NAMES)], number % 5, 3) for number in range(3000)}
    assert are_alike(folder, arrays) and are_alike(folder, {})


class Stub:
    """As much of an array as is used, of a type that NumPy has in other packages."""

    def __init__(self, name: str, shape: tuple[int, ...], data: Any) -> None:
        self.dtype = SimpleNamespace(name=name, byteorder="=")
        self.shape, self.nbytes = shape, data.nbytes
        self.ctypes, self.flags = data.ctypes, data.flags


@pytest.mark.parametrize("name", _TYPES)
def test_types_of_other_packages_are_named_as_by_safetensors(name: str, folder: Path) -> None:
    size = 2 if name == "bfloat16" else 1 if name.startswith(("float8", "float4")) else np.dtype(name).itemsize
    data = array("uint8", 6 * size)
    assert are_alike(folder, {"a": Stub(name, (2, 3), data)})


def test_metadata_is_sorted(folder: Path) -> None:
    """safetensors writes it in random order."""
    keys = [{"b": "1", "a": "2", "c": "3"}, {"c": "3", "b": "1", "a": "2"}]
    arrays = {"a": array("int8", 3)}
    files = [both(folder, arrays, metadata) for metadata in keys * 50]
    ours = {one for one, _ in files}
    assert len(ours) == 1
    assert ours < {other for _, other in files}


def test_arrays_that_are_not_contiguous_are_saved(folder: Path) -> None:
    whole = array("int32", 40, 60)
    arrays = {"turned": whole.T, "part": whole[3:9, 7:50:3], "backwards": whole[::-1], "wide": np.broadcast_to(whole[0], (5, 60))}
    path = folder / "strided.safetensors"
    dmabuf_dio.numpy.save_file(arrays, path)
    found = safetensors.numpy.load_file(path)
    assert all(np.array_equal(found[name], one) for name, one in arrays.items())


def test_old_file_is_replaced_and_its_views_stay(folder: Path) -> None:
    path = folder / "replaced.safetensors"
    dmabuf_dio.numpy.save_file({"a": np.full(5000, 1, np.int8)}, str(path))
    path.chmod(0o640)
    with path.open("rb") as old:
        dmabuf_dio.numpy.save_file({"a": np.full(5000, 2, np.int8)}, path)
        assert set(old.read()[-5000:]) == {1}
    assert set(path.read_bytes()[-5000:]) == {2}
    assert path.stat().st_mode & 0o777 == 0o640


def test_refusals_are_those_of_safetensors(folder: Path) -> None:
    path = folder / "refused.safetensors"
    path.write_bytes(b"before")
    short = Stub("float32", (2, 3), array("uint8", 23))
    cases: list[tuple[type[BaseException], tuple[Any, ...]]] = [
        (SafetensorError, ({"a": array("uint8", 16).view("complex128")},)),
        (SafetensorError, ({"a": np.array(["text"])},)),
        (SafetensorError, ({"a": short},)),
        (SafetensorError, ({"a": Stub("float4_e2m1fn_x2", (), array("uint8", 1))},)),
        (TypeError, ({1: array("uint8", 1)},)),
        (TypeError, ({"a": array("uint8", 1)}, {"k": 1})),
        (TypeError, ({"a": array("uint8", 1)}, {1: "v"})),
        (UnicodeEncodeError, ({"\ud800": array("uint8", 1)},)),
        (AttributeError, ([array("uint8", 1)],)),
        (AttributeError, ({"a": [1]},)),
    ]
    for error, (arrays, *metadata) in cases:
        for save_file in (safetensors.numpy.save_file, dmabuf_dio.numpy.save_file):
            refused(error, "", save_file, arrays, path, *metadata)
        assert path.read_bytes() == b"before"
    # safetensors writes a file that it does not read.
    refused(SafetensorError, "__metadata__", dmabuf_dio.numpy.save_file, {"__metadata__": array("uint8", 1)}, path)
    raised = refused(SafetensorError, "serializing.* 23 bytes", dmabuf_dio.numpy.save_file, {"a": short}, path)
    assert raised.__notes__
    assert path.read_bytes() == b"before"


def test_signature_is_that_of_safetensors() -> None:
    theirs = signature(safetensors.numpy.save_file).parameters
    ours = signature(dmabuf_dio.numpy.save_file).parameters
    names = [(one.name, one.kind, one.default) for one in theirs.values()]
    assert [(one.name, one.kind, one.default) for one in ours.values()][: len(names)] == names
    assert [one.name for one in ours.values()][len(names) :] == ["progress", "cancel"]


def test_install_leaves_save_file() -> None:
    before = safetensors.numpy.save_file
    dmabuf_dio.install()
    try:
        assert safetensors.numpy.save_file is before
    finally:
        dmabuf_dio.uninstall()


@pytest.fixture
def old(folder: Path) -> Path:
    """A file alone in its folder."""
    here = folder / "old"
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir()
    path = here / "model.safetensors"
    path.write_bytes(b"before")
    return path


def assert_kept(path: Path) -> None:
    assert path.read_bytes() == b"before"
    assert os.listdir(path.parent) == [path.name]


# Each is copied by the thread that saves, so that none is copied after the save was stopped.
SWAPPED = {str(number): np.zeros(1 << 20, ">f4") for number in range(30)}


def test_cancelled_save_keeps_the_old_file(old: Path) -> None:
    token = dmabuf_dio.CancelToken()

    def stop(done: int, total: int) -> None:
        if done:
            token.cancel()

    raised = refused(OSError, "cancelled", dmabuf_dio.numpy.save_file, SWAPPED, old, progress=stop, cancel=token)
    assert (raised.errno, raised.filename) == (errno.ECANCELED, str(old))
    assert "the path is as it was before" in raised.__notes__
    assert_kept(old)


def test_exception_of_a_callback_keeps_the_old_file(old: Path) -> None:
    def fail(done: int, total: int) -> None:
        if done:
            raise ZeroDivisionError

    refused(ZeroDivisionError, "", dmabuf_dio.numpy.save_file, SWAPPED, old, progress=fail)
    assert_kept(old)


INTERRUPTED = """
import os, signal, sys
import numpy as np
import dmabuf_dio.numpy
signal.signal(signal.SIGINT, signal.default_int_handler)
def progress(done, total):
    if done:
        os.kill(os.getpid(), signal.SIGINT)
arrays = {str(number): np.zeros(1 << 20, sys.argv[2]) for number in range(30)}
before = len(os.listdir("/proc/self/fd"))
try:
    while True:
        dmabuf_dio.numpy.save_file(arrays, sys.argv[1], progress=progress)
except KeyboardInterrupt:
    assert len(os.listdir("/proc/self/fd")) == before
    print("in good order")
"""


def test_ctrl_c_ends_a_save(old: Path) -> None:
    assert run(INTERRUPTED, old, ">f4") == "in good order\n"
    assert_kept(old)
    # What is not copied may all be written by the time that the signal is seen.
    assert run(INTERRUPTED, old, "<f4") == "in good order\n"
    assert os.listdir(old.parent) == [old.name]


def test_progress_runs_to_the_total(old: Path) -> None:
    seen: list[tuple[int, int]] = []
    dmabuf_dio.numpy.save_file(SWAPPED, old, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (old.stat().st_size,) * 2


def test_copies_exist_one_at_a_time(old: Path) -> None:
    size = SWAPPED["0"].nbytes
    tracemalloc.start()
    try:
        dmabuf_dio.numpy.save_file(SWAPPED, old)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size <= peak < 1.5 * size


def test_other_threads_run_during_a_save(old: Path) -> None:
    """The interpreter is not held: another thread cancels a save that has begun."""
    arrays = {"a": np.zeros(128 << 20, np.uint8)}
    for _ in range(100):
        token = dmabuf_dio.CancelToken()
        timer = threading.Timer(0.01, token.cancel)
        timer.start()
        try:
            dmabuf_dio.numpy.save_file(arrays, old, cancel=token)
        except OSError as error:
            if "after 0 of" not in str(error):
                return
        finally:
            timer.join()
    raise AssertionError("no save was cancelled after its first bytes")


def test_system_errors_are_those_of_the_system(folder: Path) -> None:
    path = folder / "missing" / "model.safetensors"
    raised = refused(FileNotFoundError, "", dmabuf_dio.numpy.save_file, {"a": array("uint8", 1)}, path)
    assert raised.filename == str(path)
    assert any("folder must exist" in note for note in raised.__notes__)
    refused(IsADirectoryError, "", dmabuf_dio.numpy.save_file, {}, folder)


FAILING = """
import os, sys
import numpy as np
import dmabuf_dio.numpy
path, number, user = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.chdir(os.path.dirname(path))
if user and not os.getuid():
    os.setuid(user)
try:
    dmabuf_dio.numpy.save_file({"a": np.zeros(4 << 20, np.uint8)}, os.path.basename(path))
except OSError as error:
    assert error.errno == number, error
    assert "the path is as it was before" in error.__notes__, error.__notes__
    assert open(os.path.basename(path), "rb").read() == b"before"
    assert os.listdir(".") == [os.path.basename(path)]
    print("refused")
"""


def test_read_only_folder_keeps_the_old_file(old: Path) -> None:
    old.parent.chmod(0o555)
    try:
        if not os.getuid():
            # Permissions hold for others only, who have to get there.
            reach = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "ls", old.parent], capture_output=True)
            if reach.returncode:
                pytest.skip("no other user reaches the folder")
        assert run(FAILING, old, errno.EACCES, 65534) == "refused\n"
    finally:
        old.parent.chmod(0o755)
    assert_kept(old)


def test_full_disk_keeps_the_old_file(old: Path) -> None:
    mount = f"mount -t tmpfs -o size=1m none {old.parent} && printf before >{old} && exec"
    private: Callable[..., Any] = lambda *command: subprocess.run(  # noqa: E731
        ["unshare", "--mount", "sh", "-c", f'{mount} "$@"', "sh", *map(str, command)], capture_output=True, text=True
    )
    if private("true").returncode:
        pytest.skip("no right to mount")
    done = private(sys.executable, "-c", FAILING, old, errno.ENOSPC, 0)
    assert done.stdout == "refused\n", done.stderr
    assert_kept(old)
