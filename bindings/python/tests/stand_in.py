# SPDX-License-Identifier: MIT OR Apache-2.0
"""A library that stands in for the driver of CUDA and HIP devices, whose memory is the host's."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[3] / "crates/dmabuf-dio-device/tests/stand_in.c"


class Counters(NamedTuple):
    """What the library has counted."""

    copies: int
    copied: int
    pinned: int
    pins: int
    streams: int
    events: int
    contexts: int
    allocations: int
    most_pending: int
    pageable: int
    torn: int


@functools.cache
def _built() -> str:
    path = f"{tempfile.mkdtemp()}/driver.so"
    subprocess.run(["cc", "-O1", "-fPIC", "-shared", "-pthread", SOURCE, "-o", path], check=True)
    return path


class StandIn:
    """A driver of its own for a test."""

    def __init__(self, folder: Path) -> None:
        # Each has its own variables.
        self.path = shutil.copy(_built(), str(folder / "driver.so"))
        self._library = ctypes.CDLL(self.path)
        self.setup()

    def setup(
        self, seed: int = 7, delay: int = 0, memory: int = 1 << 40, call: str = "", times: int = 0, status: int = 0
    ) -> None:
        """Copies are up to `delay` us late. Without `memory` each address is the device's. `call` fails from the n-th time."""
        wide = ctypes.c_uint64
        self._library.stand_in_setup(wide(seed), delay, wide(memory), call.encode(), times, status)

    def integrate(self) -> None:
        """Lets the devices have the host's memory."""
        self._library.stand_in_integrated(1)

    def counters(self) -> Counters:
        """What was counted so far."""
        found = (ctypes.c_uint64 * len(Counters._fields))()
        self._library.stand_in_counters(found)
        return Counters(*found)

    def assert_clean(self) -> None:
        """Nothing is left, and nothing was done that the drivers' references forbid."""
        _, _, pinned, _, streams, events, contexts, allocations, _, pageable, torn = found = self.counters()
        assert (pinned, streams, events, contexts, allocations, pageable, torn) == (0,) * 7, found
