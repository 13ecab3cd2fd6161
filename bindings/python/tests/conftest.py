# SPDX-License-Identifier: MIT OR Apache-2.0
"""Files that the tests load."""

from __future__ import annotations

import os
import random
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

# Neither a whole page nor a whole block; larger than a huge page and than a request.
LENGTH = (5 << 20) + 4097


@pytest.fixture(scope="session", autouse=True)
def without_the_gil() -> Iterator[None]:
    """An interpreter that can do without the GIL stays without it."""
    yield
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert not sys._is_gil_enabled()  # type: ignore[attr-defined, unused-ignore]  # pyright: ignore


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on a disk: /tmp may be in memory, which has no direct I/O."""
    given = os.environ.get("DMABUF_DIO_TEST_FOLDER")
    if given:
        path = Path(given) / f"python-{os.getpid()}"
        path.mkdir()
        return path
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="session")
def content() -> bytes:
    return random.Random(7).randbytes(LENGTH)


@pytest.fixture(scope="session")
def file(folder: Path, content: bytes) -> Path:
    path = folder / "content"
    path.write_bytes(content)
    return path
