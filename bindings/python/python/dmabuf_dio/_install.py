# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes programs that load safetensors files load them through this package."""

from __future__ import annotations

import sys
from threading import Lock
from typing import TYPE_CHECKING, Any

from ._safe_open import safe_open

if TYPE_CHECKING:
    from collections.abc import Callable

# What is in use since install(), and what it stands for.
_installed: list[tuple[object, object]] = []
# A second install() meanwhile would take ours for the originals.
_changing = Lock()


class _SafeOpen(safe_open):
    """The class that install() puts in place. Files for other frameworks are opened by safetensors."""

    original: Any = None

    def __new__(
        cls, filename: Any, framework: str, device: Any = "cpu", *, backend: str = "mmap"
    ) -> Any:
        if framework not in ("np", "numpy", "pt", "torch", "pytorch"):
            return cls.original(filename, framework, device, backend=backend)
        return super().__new__(cls)


def install() -> None:
    """From now on safetensors.safe_open, safetensors.torch.load_file and safetensors.numpy.load_file are those of this
    package, also where a loaded module has imported their names: transformers and diffusers load through it. What
    safetensors does beside loading files stays as it is. Safe to call twice.
    """
    with _changing:
        if _installed:
            return
        import safetensors

        _SafeOpen.original = safetensors.safe_open
        pairs: list[tuple[object, object]] = [(safetensors.safe_open, _SafeOpen)]
        # The others use safe_open. A module that is imported later imports ours.
        for name in ("numpy", "torch"):
            module = sys.modules.get(f"safetensors.{name}")
            if module is not None:
                pairs.append((module.load_file, _load_file(name)))
        _replace(pairs)
        _installed.extend((ours, original) for original, ours in pairs)


def uninstall() -> None:
    """Undoes install(): every module has the functions again that it had, or would have without install()."""
    with _changing:
        _replace(_installed)
        _installed.clear()


def _load_file(framework: str) -> Callable[..., Any]:
    # A function of its own for every install(): programs may use this package's by name, too.
    def load_file(filename: Any, device: Any = "cpu", *, backend: str = "mmap") -> Any:
        with _SafeOpen(filename, framework, device, backend=backend) as file:
            return file.get_tensors()

    return load_file


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
