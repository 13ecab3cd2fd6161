# SPDX-License-Identifier: MIT OR Apache-2.0
"""How the tensors of a model are divided among ranks."""

from __future__ import annotations

import re
from fnmatch import translate
from operator import index
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ._native import Model
    from .types import Rule, Split

    # The dimension, the sizes of sections, or ranges: what _Reader takes.
    Cut = Union[tuple[int, list[int], Union[list[tuple[int, int]], None]], None]

_DIMENSIONS = {"rows": 0, "columns": 1}
_FORMS = (
    'a rule is "rows", "columns", a dimension, None, (dimension, [SIZE, ...]) or (dimension, [slice(START, STOP), ...])'
)


def cuts(model: Model, numbers: list[int], split: Split) -> list[tuple[int, Cut]]:
    """The cut of each tensor, by its place in the model."""
    names = model.keys()
    if callable(split):
        rules = [split(names[number], model[names[number]].shape) for number in numbers]
    elif hasattr(split, "items"):
        rule = _by_name(split, names)
        rules = [rule(names[number]) for number in numbers]
    else:
        hint = 'pass split={"PATTERN": RULE, ...}, or a function of name and shape'
        raise _error(TypeError, f"split= is neither a dict nor a function: {split!r}", hint)
    return [(number, _cut(names[number], model, rule)) for number, rule in zip(numbers, rules)]


def _by_name(split: Mapping[str, Rule], names: list[str]) -> Callable[[str], Rule]:
    """The rule of the first pattern that matches a name. Each pattern has to match a tensor of the model."""
    rules = [*split.values(), None]
    # Names need no search: there may be as many of them as tensors.
    exact: dict[str, int] = {}
    patterns: list[tuple[int, Callable[[str], object]]] = []
    known, unused = set(names), list[str]()
    for place, pattern in enumerate(split):
        if any(char in "*?[" for char in pattern):
            matches = re.compile(translate(pattern)).match
            patterns.append((place, matches))
            is_used = any(map(matches, names))
        else:
            exact[pattern] = place
            is_used = pattern in known
        if not is_used:
            unused.append(pattern)
    if unused:
        hint = "correct or remove it; * stands for any characters, and Model.keys() has the names"
        raise _error(ValueError, f"no tensor is named as split= says: {', '.join(unused)}", hint)

    def rule(name: str) -> Rule:
        named = exact.get(name, len(rules) - 1)
        before = (place for place, matches in patterns if place > named or matches(name))
        return rules[min(next(before, named), named)]

    return rule


def _cut(name: str, model: Model, rule: Rule) -> Cut:
    if rule is None:
        return None
    dim: Any
    parts: Any
    dim, parts = rule if isinstance(rule, tuple) and len(rule) == 2 else (rule, None)
    if isinstance(dim, str):
        if dim not in _DIMENSIONS:
            raise ValueError(f'split= says "{dim}" of {name}: choose "rows", "columns", a dimension or None')
        dim = _DIMENSIONS[dim]
    try:
        dim = index(dim)
        parts = None if parts is None else [part if isinstance(part, slice) else index(part) for part in parts]
    except TypeError:
        raise _error(TypeError, f"split= has no rule for {name}: {rule!r}", _FORMS) from None
    shape = model[name].shape
    if dim < 0:
        dim += len(shape)
    if not 0 <= dim < len(shape):
        raise _error(
            ValueError,
            f"{name}, with the shape {list(shape)}: it has no such dimension as split= says: {rule!r}",
            "choose one that it has; the rule None leaves a tensor whole",
        )
    if parts is None:
        return dim, [], None
    sizes = [part for part in parts if not isinstance(part, slice)]
    if not parts or 0 < len(sizes) < len(parts):
        what = "neither sizes nor slices" if not parts else "sizes and slices"
        hint = "give the sizes of all sections, or the slices of this rank: slice(0, 0) is nothing"
        raise _error(ValueError, f"{name}: split= has {what}: {rule!r}", hint)
    if sizes:
        if any(not 0 <= size <= shape[dim] for size in sizes):
            hint = "pass the sizes of all sections, in their order"
            raise _error(ValueError, f"{name}, with the shape {list(shape)}: split= has no such sections: {rule!r}", hint)
        return dim, sizes, None
    try:
        bounds = [part.indices(shape[dim]) for part in parts]
    except TypeError:
        raise _error(TypeError, f"split= has no rule for {name}: {rule!r}", _FORMS) from None
    if any(step != 1 for _, _, step in bounds):
        hint = "give several slices, slice(START, STOP), without a step"
        raise _error(ValueError, f"{name}: split= has a slice with a step: {rule!r}", hint)
    return dim, [], [(start, max(start, stop)) for start, stop, _ in bounds]


def _error(kind: type[Exception], text: str, hint: str) -> Exception:
    error = kind(text)
    error.add_note(hint)
    return error
