# SPDX-License-Identifier: MIT OR Apache-2.0
"""Indexes of slices, as safetensors takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ._layout import PartialBytes, byte_shape

if TYPE_CHECKING:
    from ._native import TensorInfo

if TYPE_CHECKING:

    class SafetensorError(Exception): ...
else:
    try:
        # Programs catch this one.
        from safetensors import SafetensorError
    except ImportError:

        class SafetensorError(Exception):
            """The exception of safetensors, if safetensors is not installed."""


def checked(index: Any, shape: list[int]) -> tuple[Any, ...]:
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
    found: list[Any] = []
    dimension = 0
    for position, item in enumerate(items):
        if item is Ellipsis:
            dimension += len(shape) - given
            found.append(item)
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
            raise SafetensorError(f"Unsupported slice index at position {position}: expected slice, int, or ellipsis")
        found.append(item)
        dimension += 1
    return tuple(found)


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


def written_out(index: tuple[Any, ...], shape: tuple[int, ...]) -> list[int | slice[int, int, int]]:
    """An index with an item for each dimension, none of them negative."""
    missing = [slice(None)] * (len(shape) - sum(item is not Ellipsis for item in index))
    at = index.index(Ellipsis) if Ellipsis in index else len(index)
    items: list[Any] = [*index[:at], *missing, *index[at + 1 :]]
    return [
        slice(*item.indices(size)) if isinstance(item, slice) else item % size for item, size in zip(items, shape)
    ]


def elements(items: list[int | slice[int, int, int]]) -> list[tuple[int, int]]:
    """The first and the last element, not included, that an index needs in each dimension."""
    return [
        (item.start, max(item.start, item.stop)) if isinstance(item, slice) else (item, item + 1) for item in items
    ]


def together(elements: list[tuple[int, int]], shape: tuple[int, ...]) -> tuple[int, int] | None:
    """The first and the last, not included, of elements that lie together in a row-major tensor. None if they do not."""
    at, count, is_split = 0, 1, False
    for (first, last), size in zip(elements, shape):
        # After a dimension with several elements all others have to be whole.
        if is_split and (first, last) != (0, size):
            return None
        is_split = is_split or last - first > 1
        at, count = at * size + first, count * (last - first)
    return at, at + count


def within(items: list[int | slice[int, int, int]], has: list[tuple[int, int]]) -> tuple[int | slice[int, int, int], ...]:
    """An index among these elements of each dimension."""
    return tuple(
        slice(item.start - first, max(item.start, item.stop) - first, item.step)
        if isinstance(item, slice)
        else item - first
        for item, (first, _) in zip(items, has)
    )


def check_packed(index: tuple[Any, ...], info: TensorInfo) -> None:
    """An error unless the index has all of the last dimension, whose elements share bytes."""
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
