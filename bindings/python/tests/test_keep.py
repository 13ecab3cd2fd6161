# SPDX-License-Identifier: MIT OR Apache-2.0
"""Files that are kept: keep:NAME wherever a path is taken."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import dmabuf_dio
import numpy as np
import pytest
from dmabuf_dio.numpy import save_file

CONTENT = np.arange(700_001, dtype=np.uint32).tobytes()


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder with a file, kept as `file`, and a model, kept as `model`."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no tmpfs")
    (tmp_path / "file.bin").write_bytes(CONTENT)
    save_file({"a": np.arange(1000.0), "b": np.ones((3, 5), np.float32)}, tmp_path / "model.safetensors")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        monkeypatch.setenv("DMABUF_DIO_KEEP", folder)
        pairs = [f"file={tmp_path / 'file.bin'}", f"model={tmp_path / 'model.safetensors'}", f"folder={tmp_path}"]
        command = [sys.executable, "-m", "dmabuf_dio", "keep", "--quiet", *pairs]
        done = subprocess.run(command, capture_output=True, text=True)
        if "not on a tmpfs" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        yield pathlib.Path(folder)


def test_load_returns_the_kept_memory(kept: pathlib.Path) -> None:
    with dmabuf_dio.load("keep:file") as buffer:
        assert buffer.kind == "memfd" and not buffer.writable and buffer.report is None
        view = memoryview(buffer)
        assert view.readonly and bytes(view) == CONTENT
        view.release()
        assert os.fstat(buffer.fileno()).st_ino == (kept / "file").stat().st_ino, "no copy"


def test_memory_of_its_own_is_loaded_from_what_is_kept(kept: pathlib.Path) -> None:
    with dmabuf_dio.load("keep:file", offset=5, length=4000) as buffer:
        assert bytes(memoryview(buffer)) == CONTENT[5:4005]
    with dmabuf_dio.load("keep:file", writable=True) as buffer:
        view = memoryview(buffer)
        view[0] = 255
        assert bytes(view[1:]) == CONTENT[1:]
        view.release()
    with dmabuf_dio.load("keep:file", kind="private") as buffer:
        assert buffer.kind == "private" and bytes(memoryview(buffer)) == CONTENT
    assert (kept / "file").read_bytes() == CONTENT


def test_models_and_pieces_are_read_by_name(kept: pathlib.Path) -> None:
    for name in ("keep:model", "keep:folder/model.safetensors"):
        with dmabuf_dio.safe_open(name, framework="np") as model:
            assert list(model.keys()) == ["a", "b"]
            assert np.array_equal(model.get_tensor("a"), np.arange(1000.0))
    gathered = dmabuf_dio.gather("keep:file", [0, 4000], 8)
    assert [bytes(memoryview(piece)) for piece in gathered] == [CONTENT[:8], CONTENT[4000:4008]]


def test_what_is_not_kept_is_an_error(kept: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing is kept as other") as caught:
        dmabuf_dio.load("keep:other")
    assert any("dmabuf-dio keep" in note for note in caught.value.__notes__)
    with pytest.raises(ValueError, match="begins with a dot"):
        dmabuf_dio.load("keep:../file")
    with pytest.raises(FileNotFoundError):
        dmabuf_dio.safe_open("keep:other", framework="np")
