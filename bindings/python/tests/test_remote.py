# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: basic
"""Objects of stores and files of web servers, by URL: every byte, what is asked for, and what fails how."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import models
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from helpers import refused
from safetensors import SafetensorError
from test_fork import child
from web import Store, serving

import dmabuf_dio
import dmabuf_dio.numpy

MIB = 1 << 20
CONTENT = random.Random(5).randbytes(20 * MIB + 4097)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with serving() as store:
        for name, value in store.environment().items():
            monkeypatch.setenv(name, value)
        yield store


@pytest.fixture(scope="module")
def tensors() -> dict[str, models.Tensor]:
    rng = random.Random(9)
    found: dict[str, models.Tensor] = {
        f"layer.{number}": ("F32", [300, 1000 + number], rng.randbytes(1200 * (1000 + number))) for number in range(12)
    }
    found["empty"] = ("F32", [0, 4], b"")
    found["scalar"] = ("F64", [], rng.randbytes(8))
    return found


@pytest.fixture(scope="module")
def model(folder: Path, tensors: dict[str, models.Tensor]) -> bytes:
    return models.safetensors(folder / "remote.safetensors", tensors, {"format": "pt"}).read_bytes()


@pytest.mark.parametrize("kind", ["any", "memfd", "file", "private"])
@pytest.mark.parametrize("start", ["s3://bucket", "web"])
def test_objects_are_loaded(store: Store, kind: Any, start: str) -> None:
    store.files["/bucket/a folder/model.bin"] = CONTENT
    url = f"{store.web}/bucket/a%20folder/model.bin" if start == "web" else "s3://bucket/a folder/model.bin"
    told: list[tuple[int, int]] = []
    with dmabuf_dio.load(url, kind=kind, progress=lambda done, total: told.append((done, total))) as buffer:
        assert bytes(buffer) == CONTENT
        report = buffer.report
        assert report is not None and (report.mode, report.bytes) == ("fetched", len(CONTENT))
        assert report.page_cache_grown is None
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert sum(last + 1 - first for _, first, last in store.take_asked()) == len(CONTENT)
    with dmabuf_dio.load(url, kind=kind, offset=4095, length=5 * MIB) as buffer:
        assert bytes(buffer) == CONTENT[4095 : 4095 + 5 * MIB]
    assert sum(last + 1 - first for _, first, last in store.take_asked()) == 5 * MIB


def test_objects_are_loaded_into_buffers_and_for_asyncio(store: Store) -> None:
    store.files["/b/k"] = CONTENT
    buffer = dmabuf_dio.Buffer.alloc(24 * MIB, kind="memfd")
    report = dmabuf_dio.load_into("s3://b/k", buffer, offset=3, buf_offset=5)
    assert report.bytes == len(CONTENT) - 3
    assert bytes(buffer)[5 : 5 + len(CONTENT) - 3] == CONTENT[3:]
    refused(ValueError, "", dmabuf_dio.load_into, "s3://b/k", buffer, buf_offset=10 * MIB)
    loaded = asyncio.run(dmabuf_dio.aload("s3://b/k", kind="private"))
    assert bytes(loaded) == CONTENT


def test_models_are_read_by_url(store: Store, model: bytes, tensors: dict[str, models.Tensor]) -> None:
    store.files["/b/dir/m.safetensors"] = model
    for url in ("s3://b/dir/m.safetensors", f"{store.web}/b/dir/m.safetensors?signature=TheSecretOfTests"):
        opened = dmabuf_dio.open(url)
        # The header, which is short, and nothing else
        (asked,) = store.take_asked()
        assert asked[1:] == (0, min(256 << 10, len(model)) - 1)
        assert opened.files == [url.split("?")[0]]
        assert opened.metadata == {"format": "pt"}
        with opened.load(kind="memfd") as loaded:
            for name, (dtype, shape, data) in tensors.items():
                assert (loaded[name].dtype, list(loaded[name].shape)) == (dtype, shape)
                assert bytes(memoryview(loaded[name])) == data, name
        store.take_asked()
        with opened.load(only=["layer.3", "layer.9"]) as loaded:
            assert bytes(memoryview(loaded["layer.9"])) == tensors["layer.9"][2]
        # Long ones are asked for in several ranges.
        asked_for = {byte for _, first, last in store.take_asked() for byte in (first, last)}
        places = [opened[name] for name in ("layer.3", "layer.9")]
        wanted = [(place.offset, place.offset + place.nbytes - 1) for place in places]
        assert {byte for place in wanted for byte in place} <= asked_for
        assert all(any(first <= byte <= last for first, last in wanted) for byte in asked_for)
        for name, tensor in dmabuf_dio.iter_tensors(url):
            assert bytes(memoryview(tensor)) == tensors[name][2], name
        store.take_asked()


def test_ranks_read_their_parts_by_url(store: Store, model: bytes, tensors: dict[str, models.Tensor]) -> None:
    store.files["/b/m.safetensors"] = model
    for rank in range(2):
        parts = dmabuf_dio.iter_tensors(
            "s3://b/m.safetensors", shard=(rank, 2), split={"*.3": "columns", "layer.*": "rows"}, only=["layer.4", "layer.10"]
        ) if rank else dmabuf_dio.iter_tensors(
            "s3://b/m.safetensors", shard=(rank, 2), split=lambda name, shape: "columns", only=["layer.4", "layer.10"]
        )
        for name, tensor in parts:
            _, shape, data = tensors[name]
            whole = np.frombuffer(data, np.uint32).reshape(shape)
            part = np.frombuffer(memoryview(tensor), np.uint32).reshape(tensor.shape)
            expected = whole[150:] if rank else whole[:, : shape[1] // 2]
            assert (part == expected).all(), name


def test_drop_ins_take_urls(store: Store, folder: Path) -> None:
    rng = np.random.default_rng(3)
    arrays: dict[str, Any] = {"a": rng.random((600, 700), np.float32), "b": rng.random((5, 3)), "empty": np.zeros((0, 3), np.int8)}
    path = folder / "drop-in.safetensors"
    safetensors.numpy.save_file(arrays, path, {"made": "by safetensors"})
    store.files["/b/m.safetensors"] = path.read_bytes()
    url = "s3://b/m.safetensors"

    def same(found: dict[str, Any]) -> None:
        assert set(found) == set(arrays)
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype and found[name].tobytes() == array.tobytes(), name
            assert found[name].shape == array.shape and found[name].flags.writeable

    same(dmabuf_dio.numpy.load_file(url))
    dmabuf_dio.install()
    try:
        same(safetensors.numpy.load_file(url))
        with safetensors.safe_open(url, "np") as file:
            same({name: file.get_tensor(name) for name in file.keys()})
    finally:
        dmabuf_dio.uninstall()
    with dmabuf_dio.safe_open(url, "np") as file:
        assert file.metadata() == {"made": "by safetensors"}
        part = file.get_slice("a")
        assert part.get_shape() == [600, 700]
        for index in [(slice(3, 9),), (slice(None), slice(5, 6)), (slice(None), slice(1, 699)), (7,)]:
            assert (part[index] == arrays["a"][index]).all(), index
        assert file.report()["read"] > 0


def test_prefixes_are_folders(store: Store, tmp_path: Path, tensors: dict[str, models.Tensor]) -> None:
    names = list(tensors)
    models.index(
        tmp_path,
        {
            "model-00001-of-00002.safetensors": {name: tensors[name] for name in names[:5]},
            "model-00002-of-00002.safetensors": {name: tensors[name] for name in names[5:]},
        },
    )
    for path in tmp_path.iterdir():
        store.files[f"/b/models/one model/{path.name}"] = path.read_bytes()
    store.files["/b/models/one model/config.json"] = b"{}"
    store.files["/b/models/other"] = b"no model"
    index = "model.safetensors.index.json"
    for url in (
        "s3://b/models/one model/",
        "s3://b/models/one model",
        f"s3://b/models/one model/{index}",
        f"{store.web}/b/models/one%20model/?sig=TheSecretOfTests",
        f"{store.web}/b/models/one%20model",
        f"{store.web}/b/models/one%20model/{index}?sig=TheSecretOfTests",
    ):
        opened = dmabuf_dio.open(url)
        assert [file.rsplit("/", 1)[1] for file in opened.files] == [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
        ]
        found = {name: bytes(memoryview(tensor)) for name, tensor in dmabuf_dio.iter_tensors(opened)}
        assert found == {name: data for name, (_, _, data) in tensors.items()}, url
        asked = [path for path, _, _ in store.take_asked()]
        # Whoever signs a folder signs its files.
        assert all(("sig=" in path) == ("sig=" in url) for path in asked), url
    assert store.lists > 0
    del store.files["/b/models/one model/model-00002-of-00002.safetensors"]
    for url in ("s3://b/models/one model/", f"{store.web}/b/models/one%20model/"):
        error = refused(FileNotFoundError, "model-00002-of-00002", dmabuf_dio.open, url)
        assert error.errno == errno.ENOENT
    error = refused(FileNotFoundError, "", dmabuf_dio.open, "s3://b/nowhere/")
    assert error.filename == "s3://b/nowhere/"
    error = refused(FileNotFoundError, "", dmabuf_dio.open, "s3://b/nowhere")
    assert error.filename == "s3://b/nowhere"


def test_errors_are_those_of_files_and_tell_no_secret(store: Store, model: bytes) -> None:
    store.files["/b/m.safetensors"] = model
    store.files["/b/m.gguf"] = b"<html>no model</html>"
    url = f"http://user:TheSecretOfTests@127.0.0.1:{store.port}/b/gone?signature=TheSecretOfTests"
    for call in (dmabuf_dio.load, dmabuf_dio.open, dmabuf_dio.numpy.load_file, dmabuf_dio.load_tensors):
        error = refused(FileNotFoundError, "404", call, url)
        assert error.filename == f"{store.web}/b/gone"
        assert "TheSecretOfTests" not in f"{error!r} {error} {error.__notes__}"
        assert error.__notes__
    store.before = lambda path, first, last: 403
    for url in ("s3://b/m.safetensors", f"{store.web}/b/m.safetensors"):
        error = refused(PermissionError, "403", dmabuf_dio.open, url)
        assert "TheSecretOfTests" not in f"{error!r} {error} {error.__notes__}"
    store.before = lambda path, first, last: None
    error = refused(ValueError, "not a model but a web page", dmabuf_dio.open, "s3://b/m.gguf")
    assert error.__notes__
    refused(SafetensorError, "web page", dmabuf_dio.safe_open, "s3://b/m.gguf", "np")
    refused(KeyError, "nothing", dmabuf_dio.open("s3://b/m.safetensors").load, only=["nothing"])
    opened = dmabuf_dio.open("s3://b/m.safetensors")
    store.files["/b/m.safetensors"] = model[:-1] + b"!"
    error = refused(OSError, "replaced", opened.load)
    assert (error.errno, error.filename) == (errno.ESTALE, "s3://b/m.safetensors")
    error = refused(OSError, "backend", dmabuf_dio.load, "s3://b/m.safetensors", backend="module")
    assert error.refusals


def test_calls_that_need_files_say_so(store: Store, tmp_path: Path) -> None:
    buffer = dmabuf_dio.Buffer.alloc(4096, kind="memfd")
    url = "https://user:TheSecretOfTests@example.invalid/a?TheSecretOfTests"
    for call in (
        lambda: dmabuf_dio.gather(url, [0], 1),
        lambda: dmabuf_dio.Gathering(url, buffer),
        lambda: dmabuf_dio.doctor(url),
        lambda: dmabuf_dio.read_blocks(url),
        lambda: dmabuf_dio.write_blocks(url),
        lambda: dmabuf_dio.numpy.save_file({"a": np.zeros(3)}, url),
    ):
        error = refused(ValueError, "^https://example.invalid/a: ", call)
        assert "TheSecretOfTests" not in f"{error!r} {error.__notes__}"
    assert not os.listdir(tmp_path)


def sums(content: bytes, chunk_size: int) -> str:
    """What `dmabuf-dio sum --chunk-size` writes."""
    chunks = [content[start : start + chunk_size] for start in range(0, len(content), chunk_size)]
    found = [hashlib.sha256(chunk).hexdigest() for chunk in chunks]
    return json.dumps({"format": "dmabuf-dio sums 1", "length": len(content), "chunk_size": chunk_size, "sha256": found})


def test_objects_are_checked_as_asked(store: Store, tmp_path: Path) -> None:
    store.files["/b/k"] = CONTENT
    digest = hashlib.sha256(CONTENT).hexdigest()
    path = tmp_path / "k.sums"
    path.write_text(sums(CONTENT, MIB))
    # The sums are those of the command.
    (tmp_path / "k").write_bytes(CONTENT)
    command = [sys.executable, "-m", "dmabuf_dio", "sum", str(tmp_path / "k"), "--chunk-size", "1MiB"]
    assert json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) == json.loads(path.read_text())
    into = dmabuf_dio.Buffer.alloc(len(CONTENT), kind="memfd")
    for url in ("s3://b/k", f"{store.web}/b/k"):
        for checks in ({"sha256": digest}, {"sha256": digest.upper()}, {"sums": path}, {"sums": os.fsencode(path), "sha256": digest}):
            options: Any = checks
            with dmabuf_dio.load(url, kind="private", **options) as buffer:
                assert bytes(buffer) == CONTENT
            assert dmabuf_dio.load_into(url, into, **options).mode == "fetched"
        assert bytes(asyncio.run(dmabuf_dio.aload(url, kind="private", sums=path))) == CONTENT
        # Parts are checked by whole chunks.
        with dmabuf_dio.load(url, kind="private", offset=MIB - 1, length=2, sums=path) as buffer:
            assert bytes(buffer) == CONTENT[MIB - 1 : MIB + 1]
        error = refused(OSError, "of a part", dmabuf_dio.load, url, length=5, sha256=digest)
        assert error.errno == errno.EINVAL
    flipped = bytearray(CONTENT)
    flipped[5 * MIB + 7] ^= 1
    store.files["/b/k"] = bytes(flipped)
    for url in ("s3://b/k", f"{store.web}/b/k"):
        error = refused(OSError, "bytes 5242880..6291456 cannot be read", dmabuf_dio.load, url, sums=path)
        assert (error.errno, error.filename) == (errno.EBADMSG, url)
        for call in (lambda: dmabuf_dio.load(url, sha256=digest), lambda: dmabuf_dio.load_into(url, into, sha256=digest)):
            assert refused(OSError, "the SHA-256 is", call).errno == errno.EBADMSG


def test_checks_that_cannot_be_used_are_errors(store: Store, tmp_path: Path) -> None:
    store.files["/b/k"] = b"content"
    (tmp_path / "file").write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest()
    for options in ({"sha256": digest}, {"sums": "k.sums"}):
        error = refused(ValueError, "are for objects", dmabuf_dio.load, tmp_path / "file", **options)
        assert error.__notes__
        refused(ValueError, "are for objects", dmabuf_dio.load, "keep:none", **options)
    for wrong in ("", digest[1:], f"{digest[1:]}x", f"+{digest[1:]}", f"{digest}0"):
        refused(ValueError, "64 hexadecimal digits", dmabuf_dio.load, "s3://b/k", sha256=wrong)
    refused(TypeError, "sha256", dmabuf_dio.save, dmabuf_dio.load("s3://b/k"), "s3://b/c", sha256=digest)
    error = refused(FileNotFoundError, "", dmabuf_dio.load, "s3://b/k", sums=tmp_path / "none")
    assert error.filename == str(tmp_path / "none") and "dmabuf-dio sum" in str(error.__notes__)
    for text in ("{}", sums(b"content", 4).replace('"chunk_size": 4', '"chunk_size": 0')):
        (tmp_path / "wrong").write_text(text)
        error = refused(OSError, "these are no sums", dmabuf_dio.load, "s3://b/k", sums=tmp_path / "wrong")
        assert (error.errno, error.filename) == (errno.EINVAL, str(tmp_path / "wrong"))
    (tmp_path / "other").write_text(sums(b"longer content", 4))
    refused(OSError, "the sums are of 14 bytes", dmabuf_dio.load, "s3://b/k", sums=tmp_path / "other")
    refused(ValueError, "no URL", dmabuf_dio.load, "s3://b/k", sums="s3://b/sums")


@pytest.mark.parametrize("kind", ["memfd", "private"])
def test_buffers_are_saved_as_objects(store: Store, tmp_path: Path, kind: Any) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    with dmabuf_dio.load(tmp_path / "file", kind=kind) as buffer:
        for url in ("s3://b/a folder/k", "s3://b/a folder/k"):
            told: list[tuple[int, int]] = []
            report = dmabuf_dio.save(buffer, url, progress=lambda done, total: told.append((done, total)))
            assert store.files.pop("/b/a folder/k") == CONTENT
            assert (report.operation, report.mode, report.bytes, report.backend) == ("save", "sent", len(CONTENT), None)
            assert report.page_cache_grown is None and report.seconds > 0 and report.copied_bytes == len(CONTENT)
            assert report.as_dict()["buffer"] == kind
            assert told[-1] == (len(CONTENT), len(CONTENT))
        # More than a part, a whole part, and one that is sent at once.
        for start, length in ((1, len(CONTENT) - 1), (4097, 8 * MIB), (5, 3)):
            dmabuf_dio.save(buffer, "s3://b/part", buf_offset=start, length=length)
            assert store.files["/b/part"] == CONTENT[start : start + length]
        assert store.uploads_begun == 3 and not store.uploads
        with dmabuf_dio.load("s3://b/part", kind="private") as again:
            assert bytes(again) == CONTENT[5:8]


def test_save_that_fails_leaves_the_old_object(store: Store) -> None:
    store.files["/b/k"] = b"old"
    buffer = dmabuf_dio.Buffer.alloc(20 * MIB, kind="memfd")
    error = refused(OSError, "", dmabuf_dio.save, buffer, f"http://user:TheSecretOfTests@127.0.0.1:{store.port}/b/k")
    assert error.errno == errno.EOPNOTSUPP and "no uploads" in str(error)
    assert "TheSecretOfTests" not in f"{error!r} {error} {error.__notes__}"
    refused(ValueError, "offset must be 0", dmabuf_dio.save, buffer, "s3://b/k", offset=1)
    assert refused(OSError, "backend", dmabuf_dio.save, buffer, "s3://b/k", backend="memfd").refusals
    refused(ValueError, "", dmabuf_dio.save, buffer, "s3://b/k", buf_offset=20 * MIB, length=1)
    assert refused(OSError, "it names no key", dmabuf_dio.save, buffer, "s3://b/").errno == errno.EINVAL
    assert store.uploads_begun == 0
    store.before_put = lambda path: 403
    for length in (5, 20 * MIB):
        error = refused(PermissionError, "", dmabuf_dio.save, buffer, "s3://b/k", length=length)
        assert error.filename == "s3://b/k" and error.__notes__
    token = dmabuf_dio.CancelToken()

    def before_put(path: str) -> int | None:
        # Parts of the upload before may still arrive.
        if "upload-2" not in path:
            return 403
        token.cancel()
        store.over.wait()
        return 503

    store.before_put = before_put
    error = refused(OSError, "", dmabuf_dio.save, buffer, "s3://b/k", cancel=token)
    assert (error.errno, error.filename) == (errno.ECANCELED, "s3://b/k")
    assert store.uploads_begun == 2 and not store.uploads, "parts are left"
    assert store.files == {"/b/k": b"old"}


def test_only_urls_are_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:" / "b").mkdir(parents=True)
    (tmp_path / "s3:" / "b" / "k").write_bytes(b"of this machine")
    store.files["/b/k"] = b"of the store"

    class Named(os.PathLike[str]):
        def __fspath__(self) -> str:
            return "s3://b/k"

    for path, content in (
        ("s3://b/k", b"of the store"),
        (Named(), b"of the store"),
        ("./s3://b/k", b"of this machine"),
        ("s3:/b/k", b"of this machine"),
        (pathlib.Path("s3://b/k"), b"of this machine"),
    ):
        with dmabuf_dio.load(path, kind="private") as buffer:
            assert bytes(buffer) == content, path
    refused(FileNotFoundError, "", dmabuf_dio.load, "ftp://b/k")


def test_child_opens_objects_again(store: Store, tmp_path: Path) -> None:
    rng = random.Random(2)
    tensors: dict[str, models.Tensor] = {name: ("U8", [100_000], rng.randbytes(100_000)) for name in "abcd"}
    model = models.safetensors(tmp_path / "m", tensors).read_bytes()
    store.files["/b/m.safetensors"] = model
    for url in ("s3://b/m.safetensors", f"{store.web}/b/m.safetensors"):
        file: Any = dmabuf_dio.safe_open(url, "np")
        opened = dmabuf_dio.open(url)

        def work() -> None:
            for name in tensors:
                assert file.get_tensor(name).tobytes() == tensors[name][2]
            with opened.load(kind="private") as loaded:
                for name, (_, _, data) in tensors.items():
                    assert bytes(memoryview(loaded[name])) == data
            with dmabuf_dio.load(url, kind="private") as buffer:
                assert bytes(buffer) == model

        work()
        # The server is in the parent, whose threads go on while it waits.
        child(work)
        work()
        child(work)
    store.files["/b/m.safetensors"] = model[:-1] + b"!"
    child(lambda: refused(OSError, "replaced", opened.load))


@pytest.mark.parametrize("call", ["load", "open", "load_file", "iter_tensors"])
def test_ctrl_c_ends_a_load_that_waits(store: Store, model: bytes, call: str) -> None:
    store.files["/b/m.safetensors"] = model
    url = "s3://b/m.safetensors"
    calls: dict[str, Callable[[], object]] = {
        "load": lambda: dmabuf_dio.load(url),
        "open": lambda: dmabuf_dio.open(url),
        "load_file": lambda: dmabuf_dio.numpy.load_file(url),
        "iter_tensors": lambda: list(dmabuf_dio.iter_tensors(url)),
    }
    # The first answer says how long it is, the second is the header.
    stalled = {"load": 1, "open": 0, "load_file": 2, "iter_tensors": 2}[call]
    count = [0]

    def before(path: str, first: int, last: int) -> int | None:
        count[0] += 1
        if count[0] == stalled + 1:
            os.kill(os.getpid(), signal.SIGINT)
        if count[0] > stalled:
            store.over.wait()
            return 503
        return None

    store.before = before
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            calls[call]()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert count[0] > stalled


def test_token_ends_a_load_that_waits(store: Store) -> None:
    store.files["/b/k"] = CONTENT
    token = dmabuf_dio.CancelToken()

    def before(path: str, first: int, last: int) -> int | None:
        if last > first + 1 and last - first < len(CONTENT) - 1:
            token.cancel()
            store.over.wait()
        return None

    store.before = before
    error = refused(OSError, "", dmabuf_dio.load, "s3://b/k", cancel=token)
    assert (error.errno, error.filename) == (errno.ECANCELED, "s3://b/k")


@pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in needs a C compiler")
def test_tensors_reach_a_device(
    store: Store, model: bytes, tensors: dict[str, models.Tensor], tmp_path: Path
) -> None:
    from stand_in import StandIn

    from dmabuf_dio import _device

    store.files["/b/m.safetensors"] = model
    driver = StandIn(tmp_path)
    for integrated in (False, True):
        if integrated:
            driver.integrate()
        with mock.patch.object(_device, "library", driver.path):
            seen = []
            for name, tensor in dmabuf_dio.iter_tensors("s3://b/m.safetensors", window=6 * MIB, device="cuda"):
                data = ctypes.string_at(tensor.data_ptr, tensor.nbytes) if tensor.nbytes else b""
                assert data == tensors[name][2], name
                seen.append(name)
                del tensor
            assert seen == list(tensors)
            gc.collect()
    driver.assert_clean()
