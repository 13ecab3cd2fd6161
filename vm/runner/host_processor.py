# SPDX-License-Identifier: MIT OR Apache-2.0
"""Which of the host's processors emulates a guest.

QEMU 7.2 emulates in one thread without the guest's memory barriers (tcg_gen_mb() in its
tcg/tcg-op.c; 8.1 keeps them), while its devices run in other threads. If these ran on different
processors, a guest could read the NVMe device's event index before the device sees what the guest
stored to the doorbell, and neither would wake the other: nothing in that queue would go on until
Linux resets the device, after two timeouts. Threads on one processor see each other's stores in
order, so all of QEMU's threads run on one.
"""

import contextlib
import fcntl
import itertools
import os
import random

from .paths import cache, lock


@contextlib.contextmanager
def reserve():
    """The number of the processor with the fewest guests of this cache. Counts as a guest of that
    processor until the block is left."""
    with lock("processors"):
        processor, slot = take()
    with slot:
        yield processor


def take():
    """That processor, and a file that is locked as long as the guest counts."""
    processors = list(os.sched_getaffinity(0))
    random.shuffle(processors)
    processor = min(processors, key=guests)
    free = (claim(slot(processor, number)) for number in itertools.count())
    return processor, next(filter(None, free))


def guests(processor):
    count = 0
    for path in cache("locks", "any").parent.glob(slot(processor, "*").name):
        file = claim(path)
        if file:
            file.close()
        else:
            count += 1
    return count


def slot(processor, number):
    return cache("locks", f"processor-{processor}-{number}.lock")


def claim(path):
    """The file, locked, or None if another holds it."""
    file = open(path, "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file
