# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which of the host's processors emulates a guest.

QEMU 7.2 emulates in one thread without the guest's memory barriers (tcg_gen_mb() in its
tcg/tcg-op.c; 8.1 keeps them), while its devices run in other threads. On another processor, the
guest can read the NVMe device's event index before the device sees what the guest stored to the
doorbell, and neither wakes the other: that request waits for its timeout. A processor that changes
threads has completed its stores, so all of QEMU's threads run on one.
"""

import contextlib
import fcntl
import itertools
import os
import random

from .paths import cache


@contextlib.contextmanager
def reserve():
    """The number of the processor with the fewest guests, which has one more until this is left."""
    processors = list(os.sched_getaffinity(0))
    random.shuffle(processors)
    for guests in itertools.count():
        for processor in processors:
            with open(cache("locks", f"processor-{processor}-{guests}.lock"), "w") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield processor
                return
