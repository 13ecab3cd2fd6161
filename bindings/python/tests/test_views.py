# SPDX-License-Identifier: MIT OR Apache-2.0
"""Views keep the memory alive, and a buffer reports them."""

from __future__ import annotations

import ctypes
import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
from helpers import refused

import dmabuf_dio
from dmabuf_dio import Buffer
from dmabuf_dio.types import Kind

KINDS: list[Kind] = ["memfd", "private"]


@pytest.fixture(params=KINDS)
def buffer(request: pytest.FixtureRequest, file: Path) -> Buffer:
    return dmabuf_dio.load(file, kind=request.param)


def test_a_view_forbids_closing_and_is_named(buffer: Buffer) -> None:
    views = [memoryview(buffer) for _ in range(7)]
    refused(BufferError, "7 views live: .*test_views.py:[0-9]+.* and 2 more", buffer.close)
    assert not buffer.closed
    del views[1:]
    refused(BufferError, "1 view lives: a memoryview or array taken at", buffer.close)
    views.clear()
    buffer.close()
    assert buffer.closed
    buffer.close()
    refused(ValueError, "closed", memoryview, buffer)
    refused(ValueError, "closed", buffer.__dlpack__, max_version=(1, 0))


def test_leaving_a_view_behind_is_an_error(file: Path) -> None:
    buffer = dmabuf_dio.load(file, kind="memfd")
    views: list[memoryview] = []
    with pytest.raises(BufferError, match="1 view lives"):
        with buffer:
            views.append(memoryview(buffer))
    assert views[0][0] == file.read_bytes()[0]
    views.clear()
    buffer.close()


def test_close_keeps_the_exception_under_way(file: Path) -> None:
    buffer = dmabuf_dio.load(file, kind="memfd")
    views: list[memoryview] = []
    with pytest.raises(ZeroDivisionError) as raised:
        with buffer:
            views.append(memoryview(buffer))
            raise ZeroDivisionError
    assert any("not closed" in note for note in raised.value.__notes__)
    assert not buffer.closed


def test_numpy_arrays_are_views(buffer: Buffer, content: bytes) -> None:
    array = np.frombuffer(buffer, dtype=np.uint8)
    assert not array.flags.writeable
    assert array.tobytes() == content
    half = array[: len(array) // 2 * 2].view(np.uint16)
    del array
    refused(BufferError, "1 view lives", buffer.close)
    del half
    assert np.asarray(memoryview(buffer)).tobytes() == content
    buffer.close()


def test_array_without_a_view_prevents_close(buffer: Buffer, content: bytes) -> None:
    """numpy.ndarray() gives its view back and goes on using the memory."""
    array = np.ndarray((100,), np.uint8, memoryview(buffer))
    refused(BufferError, "1 view lives: a memoryview or array taken at .*test_views.py", buffer.close)
    assert array.tobytes() == content[:100]
    del array
    buffer.close()


def test_an_array_of_the_buffer_itself_stays_valid(buffer: Buffer, content: bytes) -> None:
    """Nothing tells of such an array: the memory lives as long as the buffer."""
    array = np.ndarray((len(content),), np.uint8, buffer)
    buffer.close()
    del buffer
    gc.collect()
    assert array.tobytes() == content


def test_views_outlive_the_name(file: Path, content: bytes) -> None:
    for kind in KINDS:
        view = memoryview(dmabuf_dio.load(file, kind=kind))
        array = np.frombuffer(dmabuf_dio.load(file, kind=kind), np.uint8)
        tensor = np.from_dlpack(dmabuf_dio.load(file, kind=kind))
        gc.collect()
        assert view == content
        assert array.tobytes() == tensor.tobytes() == content


def test_dlpack_tensors_are_views(buffer: Buffer, content: bytes) -> None:
    assert buffer.__dlpack_device__() == (1, 0)
    tensor = np.from_dlpack(buffer)
    assert not tensor.flags.writeable
    assert tensor.tobytes() == content
    refused(BufferError, "a tensor for DLPack taken at .*test_views.py", buffer.close)
    del tensor
    # An unconsumed capsule.
    capsule = buffer.__dlpack__(max_version=(1, 0))
    assert "dltensor_versioned" in repr(capsule)
    refused(BufferError, "1 view lives", buffer.close)
    del capsule
    refused(BufferError, "read-only", buffer.__dlpack__)
    refused(BufferError, "no copy", buffer.__dlpack__, max_version=(1, 0), copy=True)
    refused(BufferError, "CPU", buffer.__dlpack__, max_version=(1, 0), dl_device=(2, 0))
    refused(ValueError, "stream", buffer.__dlpack__, max_version=(1, 0), stream=1)
    buffer.close()


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned of dlpack.h, written down independently of the extension."""

    _fields_ = [
        ("version", Version),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def test_dlpack_capsule_has_the_versioned_struct(file: Path, content: bytes) -> None:
    buffer = dmabuf_dio.load(file, kind="memfd")
    capsule = buffer.__dlpack__(max_version=(1, 1))
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = pointer(capsule, b"dltensor_versioned")
    tensor = Versioned.from_address(address)
    assert (tensor.version.major, tensor.version.minor) == (1, 0)
    assert tensor.flags == 1  # read-only
    assert (tensor.device_type, tensor.device_id, tensor.ndim) == (1, 0, 1)
    assert (tensor.code, tensor.bits, tensor.lanes) == (1, 8, 1)
    assert (tensor.shape[0], tensor.strides[0], tensor.byte_offset) == (len(content), 1, 0)
    assert ctypes.string_at(tensor.data, len(content)) == content
    # Consumed: renamed, and deleted by the consumer, here in a thread without the interpreter.
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    used = b"used_dltensor_versioned"
    rename(capsule, used)
    del capsule
    with pytest.raises(BufferError):
        buffer.close()
    tensor.deleter(address)
    buffer.close()


def test_writable_buffers_have_writable_views(file: Path, content: bytes) -> None:
    for kind in KINDS:
        with dmabuf_dio.load(file, kind=kind, writable=True) as buffer:
            assert buffer.writable
            with memoryview(buffer) as view:
                assert not view.readonly
                view[3:6] = b"abc"
            array = np.from_dlpack(buffer)
            assert array.flags.writeable
            assert array[:8].tobytes() == content[:3] + b"abc" + content[6:8]
            del array
            legacy = buffer.__dlpack__()
            assert '"dltensor"' in repr(legacy)
            del legacy
    assert file.read_bytes() == content


def test_buffer_supports_weak_references(file: Path) -> None:
    buffer = dmabuf_dio.load(file, kind="memfd")
    reference = weakref.ref(buffer)
    del buffer
    gc.collect()
    assert reference() is None
