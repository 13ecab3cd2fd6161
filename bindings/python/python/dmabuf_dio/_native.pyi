# SPDX-License-Identifier: MIT OR Apache-2.0
# The types of the extension module: bindings/python/src.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Final, Literal, Self, Unpack, final

from typing_extensions import CapsuleType

from .types import (
    Backend,
    BlockOptions,
    CaptureOptions,
    DeviceOptions,
    GatheringOptions,
    GatherOptions,
    IntoOptions,
    MadeKind,
    Numa,
    Numbers,
    Progress,
    RangeOptions,
    Source,
    TensorOptions,
    WatchedLoadOptions,
)

class _Context:
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

class _Bytes:
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
    # Otherwise Python asks for the length.
    def __bool__(self) -> Literal[True]: ...

class _Described:
    name: Final[str]
    dtype: Final[str]
    shape: Final[tuple[int, ...]]
    nbytes: Final[int]
    block: Final[tuple[int, int]]
    byte_order: Final[Literal["little", "big"]]
    offset: Final[int]

def command(words: Sequence[str], /) -> int: ...
def _is_url(path: str) -> bool: ...

@final
class CancelToken:
    def __new__(cls) -> Self: ...
    def cancel(self) -> None: ...
    cancelled: Final[bool]

@final
class Refusal:
    def __new__(
        cls, backend: Backend, reason: str, errno: int | None, remedy: str | None
    ) -> Refusal: ...
    backend: Final[Backend]
    reason: Final[str]
    errno: Final[int | None]
    remedy: Final[str | None]

@final
class Report:
    operation: Final[Literal["load", "save"]]
    backend: Final[Backend | None]
    mode: Final[Literal["direct", "buffered", "mixed", "page-cache", "fetched", "sent", "unknown"]]
    evidence: Final[str]
    bytes: Final[int]
    copied_bytes: Final[int]
    seconds: Final[float]
    cpu_seconds: Final[float]
    gb_per_second: Final[float]
    page_cache_grown: Final[int | None]
    storage_bytes: Final[int | None]
    page_size: Final[int | None]
    huge_bytes: Final[int | None]
    numa: Final[Numa | None]
    nodes: Final[dict[int, int] | None]
    locked: Final[bool]
    segments: Final[int | None]
    notes: Final[list[str]]
    refusals: Final[list[Refusal]]
    def as_dict(self) -> dict[str, Any]: ...

@final
class Buffer(_Bytes, _Context):
    @staticmethod
    def alloc(
        length: int, *, kind: MadeKind = "any", heap: str = "system"
    ) -> Buffer: ...
    @staticmethod
    def from_fd(
        fd: int, *, data_offset: int = 0, data_length: int | None = None, writable: bool = False
    ) -> Buffer: ...
    @staticmethod
    def from_env(*, writable: bool = False) -> Buffer: ...
    kind: Final[Literal["dmabuf", "memfd", "file", "private"]]
    fd: Final[int]
    def fileno(self) -> int: ...
    dmabuf_fd: Final[int]
    path: Final[str]
    data_offset: Final[int]
    len: Final[int]
    def __len__(self) -> int: ...
    report: Final[Report | None]
    writable: Final[bool]
    accessed: Final[bool]
    closed: Final[bool]
    def to_device(self, device: object) -> DeviceTensor: ...
    def close(self) -> None: ...

def load(path: Source, **options: Unpack[WatchedLoadOptions]) -> Buffer: ...
def load_into(path: Source, buffer: Buffer, **options: Unpack[IntoOptions]) -> Report: ...
def save(buffer: Buffer, path: Source, **options: Unpack[RangeOptions]) -> Report: ...

@final
class Gathered:
    buffer: Final[Buffer]
    starts: Final[memoryview[int]]
    lengths: Final[memoryview[int]]
    errors: Final[list[tuple[int, Exception]]]
    report: Final[dict[str, Any]]
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[memoryview]: ...
    def __getitem__(self, number: int, /) -> memoryview: ...

def gather(
    path: Source, offsets: Numbers, lengths: int | Numbers, **options: Unpack[GatherOptions]
) -> Gathered: ...

@final
class Gathering(_Context):
    def __new__(cls, path: Source, buffer: Buffer, **options: Unpack[GatheringOptions]) -> Self: ...
    backend: Final[Backend]
    alignment: Final[tuple[int, int]]
    def read(self, offsets: Numbers, places: Numbers, lengths: int | Numbers) -> Gathered: ...
    def close(self) -> None: ...

def doctor(path: Source | None = None) -> dict[str, Any]: ...

@final
class TensorInfo(_Described):
    file: Final[int]

@final
class Tensor(_Described, _Bytes):
    buffer: Final[Buffer | None]
    def __len__(self) -> int: ...
    # numpy.ndarray and torch.Tensor: neither has to be installed.
    def numpy(self) -> Any: ...
    def torch(self) -> Any: ...

@final
class Tensors(_Context):
    buffers: Final[list[Buffer]]
    seconds: Final[float]
    def keys(self) -> list[str]: ...
    def values(self) -> list[Tensor]: ...
    def items(self) -> list[tuple[str, Tensor]]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> Literal[True]: ...
    def __contains__(self, name: str, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __getitem__(self, name: str, /) -> Tensor: ...
    def close(self) -> None: ...

@final
class Model:
    def __new__(cls, path: str | bytes | PathLike[str] | PathLike[bytes]) -> Self: ...
    format: Final[Literal["safetensors", "GGUF"]]
    files: Final[list[str]]
    metadata: Final[dict[str, Any]]
    _metadata: Final[dict[str, Any] | None]
    def keys(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> Literal[True]: ...
    def __contains__(self, name: str, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __getitem__(self, name: str, /) -> TensorInfo: ...
    def load(self, **options: Unpack[TensorOptions]) -> Tensors: ...

@final
class _Reader:
    def __new__(
        cls,
        model: Model,
        window: int | None = None,
        shard: tuple[int, int] | None = None,
        cuts: Sequence[tuple[int, tuple[int, list[int], list[tuple[int, int]] | None] | list[tuple[int, int]] | None]] | None = None,
        most: int | None = None,
    ) -> Self: ...
    def get(self, number: int, maps: bool, /) -> tuple[TensorInfo, Buffer | bytearray | _Mapped]: ...
    def take(self, number: int, /) -> tuple[TensorInfo, Buffer | bytearray]: ...
    def tensor(self, number: int, /) -> Tensor: ...
    def part(
        self, number: int, elements: list[tuple[int, int]], maps: bool, /
    ) -> tuple[Buffer | bytearray | _Mapped, bool]: ...
    def want(self, numbers: list[int], /) -> _Wanted: ...
    def batches(self, numbers: list[int], most: int, /) -> tuple[list[list[int]], int]: ...
    def report(self) -> dict[str, int]: ...

@final
class _Wanted: ...

@final
class _Mapped:
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, view: memoryview, /) -> None: ...

@final
class DeviceTensor(_Described):
    device: Final[str]
    mapped: Final[bool]
    data_ptr: Final[int]
    __cuda_array_interface__: Final[dict[str, Any]]
    def bytes(self) -> DeviceTensor: ...
    def torch(self) -> Any: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class _Device:
    def __new__(
        cls, vendor: Literal["cuda", "hip"] | str, ordinal: int, library: str | None = None
    ) -> Self: ...
    integrated: Final[bool]
    def load(
        self,
        model: Model,
        targets: Sequence[tuple[int, tuple[int, int], int]],
        stream: int,
        total: int,
        cancel: CancelToken | None = None,
    ) -> dict[str, float]: ...
    def own(
        self, reader: _Reader, numbers: Sequence[int], total: int, cancel: CancelToken | None = None
    ) -> tuple[list[DeviceTensor], dict[str, float]]: ...
    def copy(self, buffer: Buffer, /) -> DeviceTensor: ...

def _save_tensors(
    tensors: Sequence[tuple[str, str, Sequence[int], tuple[int, int] | None]],
    filename: str | bytes | PathLike[str] | PathLike[bytes],
    metadata: dict[str, str] | None,
    fetch: Callable[[int], tuple[int, int]],
    refused: type[Exception],
    progress: Progress | None,
    cancel: CancelToken | None,
    /,
) -> Report: ...

@final
class BlockReader(_Context):
    frame: Final[int]
    block_size: Final[int]
    channels: Final[list[str]]
    rate: Final[float | None]
    how: Final[str]
    lost_frames: Final[int | None]
    def __iter__(self) -> Self: ...
    def __next__(self) -> Buffer: ...
    def close(self) -> None: ...

@final
class BlockWriter(_Context):
    frame: Final[int]
    block_size: Final[int]
    how: Final[str]
    def __iter__(self) -> Self: ...
    def __next__(self) -> Buffer: ...
    def put(self, block: Buffer, length: int | None = None) -> None: ...
    def close(self) -> int: ...

def capture(device: str, **options: Unpack[CaptureOptions]) -> BlockReader: ...
def replay(device: str, **options: Unpack[DeviceOptions]) -> BlockWriter: ...
def read_blocks(
    path: str | bytes | PathLike[str] | PathLike[bytes], **options: Unpack[BlockOptions]
) -> BlockReader: ...
def write_blocks(
    path: str | bytes | PathLike[str] | PathLike[bytes], **options: Unpack[BlockOptions]
) -> BlockWriter: ...
