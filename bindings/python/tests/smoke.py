# SPDX-License-Identifier: MIT OR Apache-2.0
"""smoke.py FILE: tests that work with any interpreter and without any other package."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path

import dmabuf_dio


def refused_in_a_subinterpreter() -> None:
    """Its own GIL, since Python 3.12, makes no difference."""
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    interpreters = importlib.import_module(name)
    one = interpreters.create()
    program = """
try:
    import dmabuf_dio
except ImportError as error:
    assert "interpreter" in str(error), error
else:
    raise AssertionError("imported")
"""
    found = interpreters.run_string(one, program)
    assert found is None, found
    interpreters.destroy(one)


def main() -> None:
    file = Path(sys.argv[1])
    content = file.read_bytes()
    for kind in ("memfd", "private"):
        with dmabuf_dio.load(file, kind=kind) as buffer:
            view = memoryview(buffer)
            assert view == content
            try:
                buffer.close()
            except BufferError as error:
                assert "1 view lives" in str(error)
            else:
                raise AssertionError("closed under a view")
            view.release()
    with asyncio.run(dmabuf_dio.aload(file, kind="memfd")) as buffer:
        assert Path(buffer.path).read_bytes() == content
    try:
        dmabuf_dio.load("/nowhere")
    except FileNotFoundError as error:
        assert error.filename == "/nowhere"
    refused_in_a_subinterpreter()
    threads = "free-threaded" if not getattr(sys, "_is_gil_enabled", lambda: True)() else "with the GIL"
    print(f"Python {sys.version.split()[0]}, {threads}: ok")


if __name__ == "__main__":
    main()
