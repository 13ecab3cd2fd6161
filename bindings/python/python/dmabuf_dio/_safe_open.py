# SPDX-License-Identifier: MIT OR Apache-2.0
"""safe_open() with the interface of safetensors 0.8."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ._lazy import HasName, Lazy
from ._native import Model

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from types import TracebackType

    from ._native import TensorInfo

if TYPE_CHECKING:
    Convert = Callable[..., Any]

    class SafetensorError(Exception): ...
else:
    try:
        # Programs catch this one.
        from safetensors import SafetensorError
    except ImportError:

        class SafetensorError(Exception):
            """The exception of safetensors, if safetensors is not installed."""


class PartialBytes(ValueError):
    """A tensor of a packed type whose last dimension is not whole bytes."""


_NUMPY = ("np", "numpy")
_TORCH = ("pt", "torch", "pytorch")


class safe_open:
    """Opens a safetensors file: its header now, its tensors when they are requested.

    Tensors are in memory of this process, writable. Those that were loaded together share an allocation, which is freed
    with the last of them. As with safetensors, a request gives memory that no other request gave, except for torch:
    there a tensor has one memory as long as the file is open, unless backend is "pread".
    """

    def __init__(
        self,
        filename: str | PathLike[str],
        framework: str,
        device: Any = "cpu",
        *,
        backend: str = "mmap",
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
        self._file: Lazy | None = Lazy(model, shares=self._torch and backend == "mmap")

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

    def keys(self, /) -> list[str]:
        """The names of the tensors, sorted."""
        return sorted(self._opened().model.keys())

    def offset_keys(self, /) -> list[str]:
        """The names of the tensors, in the order of their bytes."""
        return self._opened().model.keys()

    def metadata(self, /) -> dict[str, str] | None:
        """The metadata of the header."""
        return self._opened().model._metadata  # pyright: ignore[reportPrivateUsage]

    def get_tensor(self, /, name: str) -> Any:
        """A tensor. To read a whole file, the order of `offset_keys()` is best."""
        try:
            info, memory = self._opened().tensor(name)
        except KeyError:
            raise _missing(name) from None
        try:
            value = self._convert(info, memory)
        except PartialBytes as error:
            raise SafetensorError(str(error)) from None
        return value if self._device is None else value.to(self._device)

    def get_tensors(self, /) -> dict[str, Any]:
        """All tensors, in the order of their bytes."""
        file = self._opened()
        reads: Callable[[Any], bool] = _never
        if self._torch:
            from .torch import copies as reads
        try:
            tensors = file.all(self._convert, reads)
        except PartialBytes as error:
            raise SafetensorError(str(error)) from None
        if self._device is None:
            return tensors
        return {name: tensor.to(self._device) for name, tensor in tensors.items()}

    def get_slice(self, /, name: str) -> PySafeSlice:
        """A tensor to be sliced. For torch its first use loads it, and all others of which slices exist by then."""
        return PySafeSlice(self._opened(), name, self._torch, self._device, self._convert)

    def __reduce__(self) -> Any:
        raise _unpicklable("safe_open")

    def _opened(self) -> Lazy:
        # Another thread may close it meanwhile.
        file = self._file
        if file is None:
            raise SafetensorError("File is closed")
        return file


class PySafeSlice(HasName):
    """A tensor of a file. Slicing it returns a tensor, even after the file is closed."""

    def __init__(self, file: Lazy, name: str, for_torch: bool, device: Any, convert: Convert) -> None:
        try:
            self._info = file.info(name)
        except KeyError:
            raise _missing(name) from None
        self._file = file
        self._torch = for_torch
        self._convert = convert
        self._device = device
        self.name = name
        file.announce(self)

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return list(self._info.shape)

    def get_dtype(self) -> str:
        """The type, as the header spells it."""
        return self._info.dtype

    def __getitem__(self, index: Any) -> Any:
        checked = _checked(index, self.get_shape())
        if self._info.block[0] > 1:
            _check_packed(checked, self._info)
        checked, rows = _rows(checked, self._info.shape)
        memory, found = self._file.sliced(self.name, self._info, rows)
        if found is None:
            checked, shape = (_shifted(checked, rows[0]), self._info.shape)
        else:
            shape = (rows[1] - rows[0], *self._info.shape[1:])
        if self._torch:
            part: Any = self._convert(self._info, memory, shape)[checked]
            if found is not None:
                # Memory that is not used is not kept.
                part = part.contiguous()
            return part if self._device is None else part.to(self._device)
        import numpy

        whole = self._convert(self._info, memory, shape)
        array: Any = numpy.asarray(whole[checked])
        # Memory that is not used is not kept.
        return array if array.flags.c_contiguous and array.nbytes == whole.nbytes else array.copy()

    def __reduce__(self) -> Any:
        raise _unpicklable("PySafeSlice")

    def __repr__(self) -> str:
        return f"<builtins.PySafeSlice object at {id(self):#x}>"


PySafeSlice.__module__ = "builtins"


def _convert(for_torch: bool) -> Convert:
    """What makes the framework's object of a tensor and its memory."""
    if for_torch:
        from .torch import as_tensor

        return as_tensor
    from .numpy import as_array

    return as_array


def _unpicklable(name: str) -> TypeError:
    return TypeError(f"cannot pickle 'builtins.{name}' object")


def _rows(index: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[tuple[Any, ...], tuple[int, int]]:
    """The rows that an index needs, and the index among them: what is outermost is a row."""
    size = shape[0] if shape else 1
    if not shape or not index or index[0] is Ellipsis:
        return index, (0, size)
    first, *others = index
    if not isinstance(first, slice):
        first %= size
        return (0, *others), (first, first + 1)
    start, stop, step = first.indices(size)
    stop = max(start, stop)
    return (slice(0, stop - start, step), *others), (start, stop)


def _shifted(index: tuple[Any, ...], by: int) -> tuple[Any, ...]:
    """The index among all rows."""
    if not by:
        return index
    first, *others = index
    if isinstance(first, slice):
        return (slice(first.start + by, first.stop + by, first.step), *others)  # pyright: ignore
    return (first + by, *others)


def _unreadable(text: str, hints: list[str]) -> SafetensorError:
    error = SafetensorError(f"Error while deserializing header: {text}")
    for hint in hints:
        error.add_note(hint)
    return error


def _never(_: Any) -> bool:
    return False


def _check_packed(index: tuple[Any, ...], info: TensorInfo) -> None:
    """An error unless the index has all of the last dimension, whose elements share bytes."""
    from .numpy import byte_shape

    try:
        byte_shape(info)
    except PartialBytes as error:
        raise SafetensorError(str(error)) from None
    shape = info.shape
    given = [item for item in index if item is not Ellipsis]
    if given and (len(given) == len(shape) or (len(given) < len(index) and index[-1] is not Ellipsis)):
        last = given[-1]
        if not isinstance(last, slice) or last.indices(shape[-1]) != (0, shape[-1], 1):
            raise SafetensorError(
                f"Error during slicing {_written(index)} with shape {list(shape)}: elements of {info.dtype} share bytes,"
                " so that the last dimension cannot be sliced"
            )


def _missing(name: str) -> SafetensorError:
    return SafetensorError(f"File does not contain tensor {name}")


def _checked(index: Any, shape: list[int]) -> tuple[Any, ...]:
    """An index as safetensors takes it: integers, slices that go forward, and an ellipsis."""
    if isinstance(index, list):
        if index:
            raise SafetensorError("Non empty lists are not implemented")
        index = slice(0, 0)
    items = cast("tuple[Any, ...]", index if isinstance(index, tuple) else (index,))
    given = sum(item is not Ellipsis for item in items)
    if given > len(shape):
        raise SafetensorError(
            f"Error during slicing {_written(items)} with shape {shape}: more slicing indexes than dimensions in tensor"
        )
    if len(items) - given > 1:
        raise SafetensorError("an index can only have a single ellipsis ('...')")
    checked: list[Any] = []
    dimension = 0
    for position, item in enumerate(items):
        if item is Ellipsis:
            dimension += len(shape) - given
            checked.append(item)
            continue
        size = shape[dimension]
        if isinstance(item, slice):
            for bound in _bounds(cast("slice[Any, Any, Any]", item)):
                if bound > size:
                    raise _outside(items, shape, bound - 1, dimension)
        elif hasattr(item, "__index__"):
            item = item.__index__()
            if item < -size:
                raise SafetensorError(f"Invalid index {item} for dimension {dimension} of size {size}")
            if item >= size:
                raise _outside(items, shape, item, dimension)
        else:
            raise SafetensorError(
                f"Unsupported slice index at position {position}: expected slice, int, or ellipsis"
            )
        checked.append(item)
        dimension += 1
    return tuple(checked)


def _bounds(item: slice[Any, Any, Any]) -> list[int]:
    """The bounds of a slice; an error if it does not go forward."""
    if item.step is not None and item.step <= 0:
        raise SafetensorError(f"Slice step must be a positive integer, got {item.step}")
    return [bound for bound in (item.start, item.stop) if bound is not None]


def _outside(items: tuple[Any, ...], shape: list[int], index: int, dimension: int) -> SafetensorError:
    return SafetensorError(
        f"Error during slicing {_written(items)} with shape {shape}: index {index} out of bounds for tensor"
        f" dimension #{dimension} of size {shape[dimension]}"
    )


def _written(items: tuple[Any, ...]) -> str:
    """An index, as programs write it."""
    return f"[{', '.join(_item(item) for item in items)}]"


def _item(item: Any) -> str:
    if item is Ellipsis:
        return "..."
    if not isinstance(item, slice):
        return str(item)
    parts = cast("slice[Any, Any, Any]", item)
    ends = ":".join("" if end is None else str(end) for end in (parts.start, parts.stop))
    return ends if parts.step is None else f"{ends}:{parts.step}"


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
    return None if found.type == "cpu" else found
