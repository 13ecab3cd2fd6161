# SPDX-License-Identifier: MIT OR Apache-2.0
# The types of the extension module: bindings/python/src.
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Literal, Self, final

from typing_extensions import CapsuleType

from .types import Backend, Kind, Numbers, Progress, Source

@final
class CancelToken:
    def __new__(cls) -> Self: ...
    def cancel(self) -> None: ...
    @property
    def cancelled(self) -> bool: ...

@final
class Refusal:
    @property
    def backend(self) -> Backend: ...
    @property
    def reason(self) -> str: ...
    @property
    def errno(self) -> int | None: ...
    @property
    def remedy(self) -> str | None: ...

@final
class Report:
    @property
    def operation(self) -> Literal["load", "save"]: ...
    @property
    def backend(self) -> Backend | None: ...
    @property
    def mode(self) -> Literal["direct", "buffered", "mixed", "page-cache", "unknown"]: ...
    @property
    def evidence(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def copied_bytes(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def cpu_seconds(self) -> float: ...
    @property
    def gb_per_second(self) -> float: ...
    @property
    def page_cache_grown(self) -> int | None: ...
    @property
    def storage_bytes(self) -> int | None: ...
    @property
    def page_size(self) -> int | None: ...
    @property
    def huge_bytes(self) -> int | None: ...
    @property
    def segments(self) -> int | None: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def refusals(self) -> list[Refusal]: ...
    def as_dict(self) -> dict[str, Any]: ...

@final
class Buffer:
    @staticmethod
    def alloc(
        length: int, *, kind: Literal["dmabuf", "memfd"] = "dmabuf", heap: str = "system"
    ) -> Buffer: ...
    @staticmethod
    def from_fd(
        fd: int, *, offset: int = 0, length: int | None = None, writable: bool = False
    ) -> Buffer: ...
    @staticmethod
    def from_env(*, writable: bool = False) -> Buffer: ...
    @property
    def kind(self) -> Literal["dmabuf", "memfd", "private"]: ...
    @property
    def fd(self) -> int: ...
    def fileno(self) -> int: ...
    @property
    def dmabuf_fd(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def len(self) -> int: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> Literal[True]: ...
    @property
    def report(self) -> Report | None: ...
    @property
    def writable(self) -> bool: ...
    @property
    def accessed(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, view: memoryview, /) -> None: ...
    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def load(
    path: Source,
    *,
    kind: Kind | None = None,
    offset: int = 0,
    length: int | None = None,
    backend: Backend | None = None,
    writable: bool = False,
    block_size: int | None = None,
    queue_depth: int | None = None,
    allocation_step: int | None = None,
    direct: bool = True,
    huge_pages: bool = True,
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
) -> Buffer: ...
def load_into(
    path: Source,
    buffer: Buffer,
    *,
    at: int = 0,
    offset: int = 0,
    length: int | None = None,
    backend: Backend | None = None,
    block_size: int | None = None,
    queue_depth: int | None = None,
    direct: bool = True,
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
) -> Report: ...
def save(
    buffer: Buffer,
    path: Source,
    *,
    start: int = 0,
    length: int | None = None,
    offset: int = 0,
    backend: Backend | None = None,
    block_size: int | None = None,
    queue_depth: int | None = None,
    direct: bool = True,
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
) -> Report: ...

@final
class Gathered:
    @property
    def buffer(self) -> Buffer: ...
    @property
    def starts(self) -> memoryview[int]: ...
    @property
    def lengths(self) -> memoryview[int]: ...
    @property
    def errors(self) -> list[tuple[int, Exception]]: ...
    @property
    def report(self) -> dict[str, Any]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[memoryview]: ...
    def __getitem__(self, number: int, /) -> memoryview: ...

def gather(
    path: Source,
    offsets: Numbers,
    lengths: int | Numbers,
    *,
    kind: Literal["dmabuf", "memfd"] = "dmabuf",
    queue_depth: int | None = None,
    polled: bool = False,
    backend: Backend | None = None,
    direct: bool = True,
    progress: Progress | None = None,
    cancel: CancelToken | None = None,
) -> Gathered: ...

@final
class Gatherer:
    def __new__(
        cls,
        path: Source,
        buffer: Buffer,
        *,
        spare: tuple[int, int] | None = None,
        queue_depth: int | None = None,
        polled: bool = False,
        backend: Backend | None = None,
        direct: bool = True,
    ) -> Self: ...
    @property
    def backend(self) -> Backend: ...
    @property
    def alignment(self) -> tuple[int, int]: ...
    def read(self, offsets: Numbers, places: Numbers, lengths: int | Numbers) -> Gathered: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

def doctor(path: Source | None = None) -> dict[str, Any]: ...
