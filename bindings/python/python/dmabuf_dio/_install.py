# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes programs that load safetensors files load them through this package."""

from __future__ import annotations

import os
import sys
from functools import wraps
from threading import Lock
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ._safe_open import safe_open

if TYPE_CHECKING:
    from collections.abc import Callable

# The functions in use since install(), and the originals.
_installed: list[tuple[object, object]] = []
# A concurrent install() would take ours for the originals.
_changing = Lock()


def _after_fork() -> None:
    global _changing
    # A thread of the parent may hold it.
    _changing = Lock()


os.register_at_fork(after_in_child=_after_fork)


def _class_in_place_of(original: Any) -> type:
    """The class that install() puts in place. It looks like the original, and objects of one count as objects of the
    other. Files for other frameworks are opened by safetensors.
    """

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return super().__instancecheck__(instance) or isinstance(instance, original)

        def __repr__(cls) -> str:
            return repr(original)

    def new(cls: Any, filename: Any, framework: str, device: Any = "cpu", *, backend: str = "mmap") -> Any:
        if framework not in ("np", "numpy", "pt", "torch", "pytorch"):
            return original(filename, framework, device, backend=backend)
        return object.__new__(cls)

    def no_subclass(cls: Any, **_: object) -> None:
        raise TypeError(f"type '{_full_name(original)}' is not an acceptable base type")

    content: dict[str, Any] = {
        "__new__": new,
        "__doc__": original.__doc__,
        "__module__": original.__module__,
        "__qualname__": getattr(original, "__qualname__", "safe_open"),
        "__repr__": lambda self: f"<{_full_name(original)} object at {id(self):#x}>",  # pyright: ignore
        "__class__": property(lambda _: original),
    }
    for name, function in vars(safe_open).items():
        theirs = getattr(original, name, None)
        if isinstance(function, FunctionType) and not name.startswith("_") and theirs is not None:
            content[name] = copy = FunctionType(
                function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
            )
            copy.__doc__ = theirs.__doc__
            copy.__qualname__ = getattr(theirs, "__qualname__", copy.__qualname__)
    made = Meta(getattr(original, "__name__", "safe_open"), (safe_open,), content)
    made.__init_subclass__ = classmethod(no_subclass)  # type: ignore
    made.__signature__ = _signature(original)  # type: ignore[attr-defined]  # pyright: ignore
    return made


def _full_name(what: Any) -> str:
    return f"{what.__module__}.{what.__qualname__}"


def _signature(what: Any) -> Any:
    from inspect import signature

    return signature(what)


def install() -> None:
    """Replaces safetensors.safe_open, safetensors.torch.load_file and safetensors.numpy.load_file by functions of this
    package, also where a loaded module has imported their names: transformers and diffusers load through it. Other
    functions of safetensors stay as they are. Safe to call twice.
    """
    with _changing:
        if _installed:
            return
        import safetensors

        ours: Any = _class_in_place_of(safetensors.safe_open)
        pairs: list[tuple[object, object]] = [(safetensors.safe_open, ours)]
        # Other modules use safe_open. A module that is imported later imports ours.
        for name in ("numpy", "torch"):
            module = sys.modules.get(f"safetensors.{name}")
            if module is not None:
                pairs.append((module.load_file, _load_file(name, module.load_file, ours)))
        _replace(pairs)
        _installed.extend((after, before) for before, after in pairs)


def uninstall() -> None:
    """Undoes install(): every module has the functions that it would have without install()."""
    with _changing:
        _replace(_installed)
        _installed.clear()


def _load_file(framework: str, original: Callable[..., Any], opens: Any) -> Callable[..., Any]:
    # Every install() creates a function: programs may also use this package's function by name.
    if framework == "numpy":

        def load_file(filename: Any, *, backend: str = "mmap") -> Any:  # pyright: ignore
            with opens(filename, framework, backend=backend) as file:
                return file.get_tensors()

    else:

        def load_file(filename: Any, device: Any = "cpu", *, backend: str = "mmap") -> Any:  # type: ignore[misc]  # pyright: ignore
            with opens(filename, framework, device, backend=backend) as file:
                return file.get_tensors()

    # Pickled as the original is: by module and name, under which it is found.
    ours: Any = wraps(original)(load_file)
    del ours.__wrapped__
    return ours  # type: ignore[no-any-return]


def _replace(pairs: list[tuple[object, object]]) -> None:
    """Replaces the first of each pair by the second, under whatever name a module has it."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict) or getattr(module, "__name__", "") == __name__:
            continue
        for name, value in list(names.items()):  # pyright: ignore
            for before, after in pairs:
                if value is before:
                    names[name] = after
