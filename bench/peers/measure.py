# SPDX-License-Identifier: MIT OR Apache-2.0
"""Wall time, and CPU time of this process with all its threads and the children it waited for."""

import resource
import time
from typing import NamedTuple


class Taken(NamedTuple):
    """Seconds."""

    wall: float
    user: float
    system: float


def _now() -> Taken:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(time.perf_counter(), own.ru_utime + children.ru_utime, own.ru_stime + children.ru_stime)


class Stopwatch:
    """Runs from its creation."""

    def __init__(self) -> None:
        self._start = _now()

    def lap(self) -> Taken:
        now = _now()
        return Taken(*(end - begin for begin, end in zip(self._start, now)))
