# SPDX-License-Identifier: MIT OR Apache-2.0
"""How the tensors of a model are divided among ranks."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._native import Model
    from .types import Dimension, Rule, Split

    # The dimension, the sizes of sections, or ranges: what _Reader takes.
    Cut = Union[tuple[int, list[int], Union[list[tuple[int, int]], None]], None]

_DIMENSIONS = {"rows": 0, "columns": 1}


def cuts(model: Model, numbers: list[int], split: Split) -> list[tuple[int, Cut]]:
    """The cut of each tensor, by its place in the model."""
    names = model.keys()
    rules: list[Rule]
    if callable(split):
        rules = [split(names[number], model[names[number]].shape) for number in numbers]
    else:
        unused = dict.fromkeys(split)
        rules = []
        for number in numbers:
            pattern = next((pattern for pattern in split if fnmatchcase(names[number], pattern)), None)
            rules.append(None if pattern is None else split[pattern])
            unused.pop(pattern, None)  # type: ignore[arg-type]
        if unused:
            raise ValueError(f"no tensor is named as split= says: {', '.join(unused)}")
    return [(number, _cut(names[number], model, rule)) for number, rule in zip(numbers, rules)]


def _cut(name: str, model: Model, rule: Rule) -> Cut:
    if rule is None:
        return None
    dim: Dimension
    parts: Sequence[int | slice[int | None, int | None, int | None]]
    dim, parts = rule if isinstance(rule, tuple) else (rule, ())
    if isinstance(dim, str):
        if dim not in _DIMENSIONS:
            raise ValueError(f'split= says "{dim}" of {name}: choose "rows", "columns", a dimension or None')
        dim = _DIMENSIONS[dim]
    shape = model[name].shape
    if dim < 0:
        dim += len(shape)
    if not 0 <= dim < len(shape):
        raise ValueError(f"{name}, with the shape {list(shape)}: it has no such dimension as split= says: {rule!r}")
    sections = [part for part in parts if not isinstance(part, slice)]
    if not parts or len(sections) == len(parts):
        return dim, sections, None
    if sections:
        raise ValueError(f"{name}: split= has sizes and slices: {rule!r}")
    bounds = [part.indices(shape[dim]) for part in parts if isinstance(part, slice)]
    if any(step != 1 for _, _, step in bounds):
        raise ValueError(f"{name}: split= has a slice with a step: {rule!r}")
    return dim, [], [(start, max(start, stop)) for start, stop, _ in bounds]
