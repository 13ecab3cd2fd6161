# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads files into dma-bufs, memfds and huge pages, and saves them, with no copy by the CPU.

>>> import dmabuf_dio
>>> with dmabuf_dio.load("model.safetensors", kind="memfd") as buffer:  # doctest: +SKIP
...     print(buffer.report, buffer.path)

All offsets and lengths are in bytes. Errors are Python's: OSError with errno and filename, ValueError for
arguments, BufferError for memory that is in use; a note says what to do.
"""

from ._native import (
    Buffer,
    CancelToken,
    Gathered,
    Gatherer,
    Refusal,
    Report,
    doctor,
    gather,
    load,
    load_into,
    save,
)

__all__ = [
    "Buffer",
    "CancelToken",
    "Gathered",
    "Gatherer",
    "Refusal",
    "Report",
    "aload",
    "doctor",
    "gather",
    "load",
    "load_into",
    "save",
]

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._aio import aload


def __getattr__(name: str) -> object:
    # asyncio is imported only when it is used.
    if name == "aload":
        from ._aio import aload

        return aload
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
