# SPDX-License-Identifier: MIT OR Apache-2.0
"""Types of arguments, for annotations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import Buffer as BufferProtocol

    from ._native import CancelToken


class HasFileno(Protocol):
    def fileno(self) -> int: ...


# A path, an open descriptor, or an object with one.
Source: TypeAlias = Union[str, bytes, "PathLike[str]", "PathLike[bytes]", int, HasFileno]
Kind: TypeAlias = Literal["dmabuf", "memfd", "any", "private"]
# Of a buffer that is not loaded.
MadeKind: TypeAlias = Literal["dmabuf", "memfd", "any"]
# Of one file: also a file in memory with a dma-buf over its pages.
FileKind: TypeAlias = Union[Kind, Literal["file"]]
Backend: TypeAlias = Literal[
    "module", "slot", "heap", "copy_file_range", "udmabuf", "memfd", "buffered"
]
Progress: TypeAlias = Callable[[int, int], object]
# An array of 64-bit integers, or a sequence.
Numbers: TypeAlias = Union["BufferProtocol", "Sequence[int]"]


class LoadOptions(TypedDict, total=False):
    kind: FileKind
    offset: int
    length: int | None
    backend: Backend | None
    writable: bool
    block_size: int | None
    queue_depth: int | None
    allocation_step: int | None
    direct: bool
    huge_pages: bool


class TensorOptions(TypedDict, total=False):
    only: Sequence[str] | None
    kind: Kind
    writable: bool
    backend: Backend | None
    gap: int | None
    concurrency: int | None
    block_size: int | None
    queue_depth: int | None
    direct: bool
    huge_pages: bool
    progress: Progress | None
    cancel: CancelToken | None
