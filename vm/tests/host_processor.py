# SPDX-License-Identifier: MIT OR Apache-2.0
"""Guests are spread over the processors."""

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner.host_processor import reserve  # noqa: E402

PROCESSORS = {0, 1, 2}


def check(holds, message):
    if not holds:
        sys.exit(message)


with (tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, DMABUF_DIO_CACHE=cache),
      mock.patch("os.sched_getaffinity", return_value=PROCESSORS)):
    for _ in range(20):
        with ExitStack() as first, ExitStack() as last:
            numbers = {first.enter_context(reserve()) for _ in PROCESSORS}
            check(numbers == PROCESSORS, f"three guests on {numbers}")
            busy = last.enter_context(reserve())
            first.close()
            others = {last.enter_context(reserve()) for _ in range(2)}
            check(others == PROCESSORS - {busy}, f"one guest on {busy}, two more on {others}")
