# SPDX-License-Identifier: MIT OR Apache-2.0
"""safe_open() with the interface of safetensors 0.8."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from ._native import Model, Tensor, Tensors

if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType

if TYPE_CHECKING:

    class SafetensorError(Exception): ...
else:
    try:
        # Programs catch this one.
        from safetensors import SafetensorError
    except ImportError:

        class SafetensorError(Exception):
            """As that of safetensors, where that is not installed."""


_NUMPY = ("np", "numpy")
_TORCH = ("pt", "torch", "pytorch")


class safe_open:
    """Opens a safetensors file: its header now, its tensors when one is asked for, all at once.

    The tensors share the memory that the file was loaded to. It is memory of this process, writable, and freed with
    the last tensor.
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
        try:
            self._model: Model | None = Model(filename)
        except ValueError as error:
            raise SafetensorError(f"Error while deserializing header: {error}") from error
        self._loaded: Tensors | None = None

    def __enter__(self) -> safe_open:
        self._opened()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # What was handed out keeps its memory.
        self._model = self._loaded = None

    def keys(self) -> list[str]:
        """The names of the tensors, sorted."""
        return sorted(self._opened().keys())

    def offset_keys(self) -> list[str]:
        """The names of the tensors, in the order of their bytes."""
        return self._opened().keys()

    def metadata(self) -> dict[str, str] | None:
        """What the header says beside the tensors."""
        return self._opened().metadata or None

    def get_tensor(self, name: str) -> Any:
        """A tensor."""
        return self._placed(self._tensor(name))

    def get_tensors(self) -> dict[str, Any]:
        """All tensors, in the order of their bytes."""
        return {name: self._placed(tensor) for name, tensor in self._load().items()}

    def get_slice(self, name: str) -> Slice:
        """A tensor to be sliced."""
        self._info(name)
        return Slice(self, name)

    def _opened(self) -> Model:
        if self._model is None:
            raise SafetensorError("File is closed")
        return self._model

    def _info(self, name: str) -> tuple[list[int], str]:
        try:
            info = self._opened()[name]
        except KeyError:
            raise SafetensorError(f"File does not contain tensor {name}") from None
        return list(info.shape), info.dtype

    def _load(self) -> Tensors:
        if self._loaded is None:
            self._loaded = self._opened().load(kind="private", writable=True)
        return self._loaded

    def _tensor(self, name: str) -> Tensor:
        self._info(name)
        return self._load()[name]

    def _placed(self, tensor: Tensor) -> Any:
        if not self._torch:
            return tensor.numpy()
        return tensor.torch() if self._device is None else tensor.torch().to(self._device)


class Slice:
    """A tensor of a file. Slicing it gives a tensor."""

    def __init__(self, file: safe_open, name: str) -> None:
        self._file = file
        self._name = name

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return self._file._info(self._name)[0]  # pyright: ignore[reportPrivateUsage]

    def get_dtype(self) -> str:
        """The type, as the header spells it."""
        return self._file._info(self._name)[1]  # pyright: ignore[reportPrivateUsage]

    def __getitem__(self, index: Any) -> Any:
        index = _checked(index, self.get_shape())
        file = self._file
        tensor: Tensor = file._tensor(self._name)  # pyright: ignore[reportPrivateUsage]
        if file._torch:  # pyright: ignore[reportPrivateUsage]
            part: Any = tensor.torch()[index].contiguous()
            device = file._device  # pyright: ignore[reportPrivateUsage]
            return part if device is None else part.to(device)
        import numpy

        array: Any = numpy.asarray(tensor.numpy()[index])
        return array if array.flags.c_contiguous else array.copy()


def _checked(index: Any, shape: list[int]) -> tuple[Any, ...]:
    """An index as safetensors takes it: integers, slices that go forward, and an ellipsis."""
    if isinstance(index, list):
        if index:
            raise SafetensorError("Non empty lists are not implemented")
        index = ()
    items = cast("tuple[Any, ...]", index if isinstance(index, tuple) else (index,))
    given = sum(item is not Ellipsis for item in items)
    if given > len(shape):
        raise SafetensorError(
            f"Error during slicing {index!r} with shape {shape}: more slicing indexes than dimensions in tensor"
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
            _check_slice(cast("slice[Any, Any, Any]", item), size, shape, dimension)
        elif hasattr(item, "__index__"):
            item = item.__index__()
            if not -size <= item < size:
                raise SafetensorError(
                    f"Error during slicing {index!r} with shape {shape}: index {item} out of bounds for tensor"
                    f" dimension #{dimension} of size {size}"
                )
        else:
            raise SafetensorError(
                f"Unsupported slice index at position {position}: expected slice, int, or ellipsis"
            )
        checked.append(item)
        dimension += 1
    return tuple(checked)


def _check_slice(item: slice[Any, Any, Any], size: int, shape: list[int], dimension: int) -> None:
    if item.step is not None and item.step <= 0:
        raise SafetensorError(f"Slice step must be a positive integer, got {item.step}")
    for bound in (item.start, item.stop):
        if bound is not None and bound > size:
            raise SafetensorError(
                f"Error during slicing with shape {shape}: index {bound - 1} out of bounds for tensor"
                f" dimension #{dimension} of size {size}"
            )


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
