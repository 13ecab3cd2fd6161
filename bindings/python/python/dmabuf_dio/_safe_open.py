# SPDX-License-Identifier: MIT OR Apache-2.0
# pyright: reportPrivateUsage=false
"""safe_open() with the interface of safetensors 0.8."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from ._device import named
from ._index import SafetensorError, check_packed, checked, elements, within, written_out
from ._layout import PartialBytes
from ._lazy import Lazy
from ._native import Model

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from types import TracebackType

    from ._lazy import Memory
    from ._native import TensorInfo

    Convert = Callable[..., Any]

# Of a tensor for a CUDA or HIP device: fewer pass through the window, which reads ahead.
_WORTH_A_LOAD = 16 << 20
_ANY = 1 << 62

_NUMPY = ("np", "numpy")
_TORCH = ("pt", "torch", "pytorch")


class safe_open:
    """Opens a safetensors file: its header now, its tensors when they are requested.

    Each request gives a tensor in memory of its own, writable, which is freed with it. What the page cache has is
    mapped for torch, unless backend is "pread"; the file must not be truncated then.

    `window`: bytes that are read ahead at most; chosen by default from the speed of the disk and the free memory.
    """

    def __init__(
        self,
        filename: str | PathLike[str],
        framework: str,
        device: Any = "cpu",
        *,
        backend: str = "mmap",
        window: int | None = None,
    ) -> None:
        if framework not in _NUMPY + _TORCH:
            raise SafetensorError(f"framework {framework} is invalid: choose \"pt\" or \"np\"")
        if backend not in ("mmap", "pread"):
            raise SafetensorError(f'backend "{backend}" is invalid (expected one of: "mmap", "pread")')
        self._torch = framework in _TORCH
        self._device = _device(device, self._torch)
        self._convert = _convert(self._torch)
        try:
            model = Model(filename)
        except ValueError as error:
            raise _unreadable(str(error), getattr(error, "__notes__", [])) from error
        if model.format != "safetensors":
            # Programs find out by the error which format a file has.
            raise _unreadable(f"{model.files[0]}: a {model.format} file", ["open it with dmabuf_dio.open()"])
        by_ring = self._device is not None and named(self._device) is not None
        # Larger tensors do not pass through the memory of this process as a whole.
        most = None if self._device is None else _WORTH_A_LOAD if by_ring else _ANY
        self._file: Lazy | None = Lazy(model, self._torch and backend == "mmap", window, most)
        # What was read for tensors that its reader did not read: in pieces, and by a device
        self._pieces = dict.fromkeys(self._file.reader.report(), 0)
        self._target = _target(by_ring, model, self._device, self._file.most, self._pieces)

    def __enter__(self) -> safe_open:
        self._opened()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Arrays that were handed out keep their memory.
        self._file = None
        self._target = None

    def keys(self, /) -> list[str]:
        """The names of the tensors, sorted."""
        return sorted(self._opened().model.keys())

    def offset_keys(self, /) -> list[str]:
        """The names of the tensors, in the order of their bytes."""
        return self._opened().model.keys()

    def metadata(self, /) -> dict[str, str] | None:
        """The metadata of the header."""
        return self._opened().model._metadata

    def get_tensor(self, /, name: str) -> Any:
        """A tensor. To read a whole file, the order of `offset_keys()` is best: the following tensors are read ahead."""
        file, target = self._opened(), self._target
        try:
            if target is not None and target.takes(file.info(name)):
                return _packed(target.tensors, [name])[name]
            info, memory = file.tensor(name)
        except KeyError:
            raise _missing(name) from None
        return self._made(info, memory)

    def get_tensors(self, /) -> dict[str, Any]:
        """All tensors, in the order of their bytes."""
        file, target = self._opened(), self._target
        names = file.model.keys()
        if target is not None and target.takes_all:
            loaded: dict[str, Any] = _packed(target.tensors, names)
            return loaded
        taken = {name for name in names if target is not None and target.takes(file.info(name))}
        wanted = file.want(name for name in names if name not in taken)
        found = {
            name: _packed(target.tensors, [name])[name] if target and name in taken else self._made(*file.loaded(name))
            for name in names
        }
        del wanted
        return found

    def _made(self, info: TensorInfo, memory: Memory) -> Any:
        value = _packed(self._convert, info, memory)
        return value if self._device is None else value.to(self._device)

    def report(self, /) -> dict[str, int]:
        """What was read so far, in bytes: of the tensors `requested`, by loads in all (`read`), ahead and in vain
        (`dropped`); the number of loads (`reads`), and the `window`."""
        return {
            name: value if name == "window" else value + self._pieces[name]
            for name, value in self._opened().reader.report().items()
        }

    def get_slice(self, /, name: str) -> PySafeSlice:
        """A tensor to be sliced. As long as slices of tensors exist that were not used, these are read ahead."""
        return PySafeSlice(self._opened(), name, self._torch, self._device, self._convert, self._target)

    def __reduce__(self) -> Any:
        raise _unpicklable("safe_open")

    def _opened(self) -> Lazy:
        # Another thread may close it meanwhile.
        file = self._file
        if file is None:
            raise SafetensorError("File is closed")
        return file


class PySafeSlice:
    """A tensor of a file. Slicing it returns a tensor, even after the file is closed."""

    def __init__(
        self, file: Lazy, name: str, for_torch: bool, device: Any, convert: Convert, target: Target | None
    ) -> None:
        try:
            self._info = file.info(name)
        except KeyError:
            raise _missing(name) from None
        self._file = file
        self._torch = for_torch
        self._convert = convert
        self._device = device
        self._target = target
        self._name = name
        self._wanted: object = file.want([name])

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return list(self._info.shape)

    def get_dtype(self) -> str:
        """The type, as the header spells it."""
        return self._info.dtype

    def __getitem__(self, index: Any) -> Any:
        shape = self._info.shape
        wanted = checked(index, list(shape))
        if self._info.block[0] > 1:
            check_packed(wanted, self._info)
        items = written_out(wanted, shape)
        whole, has = self._loaded(elements(items))
        # The whole tensor is not read ahead for a program that uses a part of it.
        self._wanted = None
        part = whole[within(items, has)]
        # Memory that is not used is not kept.
        if self._torch:
            part = part.contiguous()
            if part.untyped_storage().nbytes() > part.nbytes:
                part = part.clone()
            return part if self._device is None or part.device == self._device else part.to(self._device)
        import numpy

        array: Any = numpy.asarray(part)
        return array if array.flags.c_contiguous and array.nbytes == whole.nbytes else array.copy()

    def _loaded(self, wanted: list[tuple[int, int]]) -> tuple[Any, list[tuple[int, int]]]:
        """What has elements of the tensor, and which it has."""
        if self._target is not None:
            part = self._target.part(self._name, wanted)
            if part is not None:
                return part, wanted
        memory, has = self._file.sliced(self._name, self._info, wanted)
        return self._convert(self._info, memory, tuple(last - first for first, last in has)), has

    def __reduce__(self) -> Any:
        raise _unpicklable("PySafeSlice")

    def __repr__(self) -> str:
        return f"<builtins.PySafeSlice object at {id(self):#x}>"


PySafeSlice.__module__ = "builtins"


class Target(Protocol):
    """Loads tensors to a device otherwise than one by one through the memory of this process."""

    # All tensors at once are its work, too.
    takes_all: bool

    def takes(self, info: TensorInfo) -> bool:
        """Whether it is to load this tensor."""
        ...

    def tensors(self, names: list[str]) -> dict[str, Any]:
        """Tensors by name."""
        ...

    def part(self, name: str, elements: list[tuple[int, int]]) -> Any:
        """Elements of a tensor, the first and last of each dimension. None if they are not worth it."""
        ...


def _target(by_ring: bool, model: Model, device: Any, most: int, report: dict[str, int]) -> Target | None:
    if device is None:
        return None
    if by_ring:
        from ._torch_device import Ring

        return Ring(model, device, most, report)
    from ._moved import Pieces

    return Pieces(model, device, most, report)


def _packed(make: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return make(*arguments)
    except PartialBytes as error:
        raise SafetensorError(str(error)) from None


def _convert(for_torch: bool) -> Convert:
    """What makes the framework's object of a tensor and its memory."""
    if for_torch:
        from ._as_torch import as_tensor

        return as_tensor
    from ._as_numpy import as_array

    return as_array


def _unpicklable(name: str) -> TypeError:
    return TypeError(f"cannot pickle 'builtins.{name}' object")


def _unreadable(text: str, hints: list[str]) -> SafetensorError:
    error = SafetensorError(f"Error while deserializing header: {text}")
    for hint in hints:
        error.add_note(hint)
    return error


def _missing(name: str) -> SafetensorError:
    return SafetensorError(f"File does not contain tensor {name}")


def _device(device: Any, for_torch: bool) -> Any:
    """The device to copy tensors to; None for the CPU's."""
    if device is None or device == "cpu":
        return None
    if for_torch:
        return _torch_device(device)
    known = isinstance(device, int) or str(device).split(":")[0] in ("cuda", "mps", "xpu", "npu", "hpu")
    text = "is not supported for framework numpy" if known else "is invalid"
    raise SafetensorError(f"Device {device} {text}" if known else f"device {device} {text}")


def _torch_device(device: Any) -> Any:
    torch: Any = import_module("torch")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise SafetensorError(f"device {device} is invalid") from error
    known = named(found)
    # torch's current device may change: all tensors of a file are on one.
    return None if found.type == "cpu" else torch.device(found.type, known[1]) if known else found
