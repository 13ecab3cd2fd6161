# SPDX-License-Identifier: MIT OR Apache-2.0
"""Types of arguments, for annotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import Buffer as BufferProtocol

    from ._native import CancelToken


class HasFileno(Protocol):
    def fileno(self) -> int: ...


# A path, an open descriptor, or an object with one. What is loaded or saved may be a URL, too.
Source: TypeAlias = Union[str, bytes, "PathLike[str]", "PathLike[bytes]", int, HasFileno]
Path: TypeAlias = Union[str, bytes, "PathLike[str]", "PathLike[bytes]"]
Kind: TypeAlias = Literal["dmabuf", "memfd", "any", "private"]
# The kind of a buffer that is not loaded.
MadeKind: TypeAlias = Literal["dmabuf", "memfd", "any"]
# The kind of a buffer for one file, which may be a file in memory with a dma-buf over its pages.
FileKind: TypeAlias = Union[Kind, Literal["file"]]
Backend: TypeAlias = Literal["module", "slot", "heap", "copy_file_range", "udmabuf", "memfd", "buffered"]
# NUMA nodes: the processor's, all in turn, or the one with this number.
Numa: TypeAlias = Union[Literal["local", "interleave"], int]
Progress: TypeAlias = Callable[[int, int], object]
# An array of 64-bit integers, or a sequence.
Numbers: TypeAlias = Union["BufferProtocol", "Sequence[int]"]
# How a tensor is divided among ranks: iter_tensors() explains it. A dict of "rows" and "columns" is one of str to type checkers.
Dimension: TypeAlias = Union[str, int]
Rule: TypeAlias = Union[
    Dimension, tuple[Dimension, Sequence[int]], tuple[Dimension, "Sequence[slice[int | None, int | None, int | None]]"], None
]
Split: TypeAlias = Union[Mapping[str, Rule], Callable[[str, tuple[int, ...]], Rule]]


class _Watched(TypedDict, total=False):
    progress: Progress | None
    cancel: CancelToken | None


class _How(TypedDict, total=False):
    backend: Backend | None
    queue_depth: int | None
    direct: bool


class _Settings(_How, total=False):
    block_size: int | None


class _NewBuffer(_Settings, total=False):
    writable: bool
    allocation_step: int | None
    huge_pages: bool
    numa: Numa | None
    lock: bool


class _Checks(TypedDict, total=False):
    """What an object is compared with as it arrives: the SHA-256 of the whole in hexadecimal digits, and a file that
    `dmabuf-dio sum` wrote, with the sums of its chunks."""

    sha256: str | None
    sums: Path | None


class LoadOptions(_NewBuffer, _Checks, total=False):
    """Options of load() and aload()."""

    kind: FileKind
    offset: int
    length: int | None


class WatchedLoadOptions(LoadOptions, _Watched, total=False):
    """Options of load()."""


class RangeOptions(_Settings, _Watched, total=False):
    """Options of save(), and of load_into(): `offset` is in the file, `length` is the same in file and buffer."""

    buf_offset: int
    offset: int
    length: int | None


class IntoOptions(RangeOptions, _Checks, total=False):
    """Options of load_into()."""


class TensorOptions(_NewBuffer, _Watched, total=False):
    """Options of Model.load() and load_tensors()."""

    only: Sequence[str] | None
    kind: Kind
    gap: int | None
    concurrency: int | None


class GatheringOptions(_How, total=False):
    """Options of Gathering."""

    polled: bool
    spare: tuple[int, int] | None


class GatherOptions(_How, _Watched, total=False):
    """Options of gather()."""

    kind: MadeKind
    polled: bool


class _Stream(TypedDict, total=False):
    block_size: int | None
    blocks: int
    kind: MadeKind


class BlockOptions(_Stream, total=False):
    """Options of read_blocks() and write_blocks()."""

    frame: int


class DeviceOptions(_Stream, total=False):
    """Options of replay()."""

    channels: Sequence[str] | None
    rate: float | None
    buffer: int


class CaptureOptions(DeviceOptions, total=False):
    """Options of capture()."""

    length: int | None
