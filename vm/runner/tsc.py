# SPDX-License-Identifier: MIT OR Apache-2.0
"""The rate of this machine's time stamp counter, which an emulated x86 guest reads as its own.

A guest that measures the rate itself, while other guests keep the host busy, can be wrong by a factor: its clock then
runs fast, and whatever waits for a device gives up early."""

import ctypes
import mmap
import platform
import time

# rdtsc; shl rdx, 32; or rax, rdx; ret
CODE = bytes.fromhex("0f31 48c1e220 4809d0 c3")
# Between two readings, and at most within one: that is the error
SPAN_NS = 20_000_000
READING_NS = 5_000
TRIES = 10_000


def khz():
    """Ticks in a millisecond; None if this machine is no x86-64, or does not let us know."""
    if platform.machine() != "x86_64":
        return None
    try:
        page = mmap.mmap(-1, len(CODE), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return None
    page.write(CODE)
    rdtsc = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    begin = reading(rdtsc)
    time.sleep(SPAN_NS / 1e9)
    end = reading(rdtsc)
    if begin is None or end is None:
        return None
    return round((end[1] - begin[1]) * 1e6 / (end[0] - begin[0]))


def reading(rdtsc):
    """The clock in ns and the counter at the same moment; None if the machine is too busy for that."""
    for _ in range(TRIES):
        before = time.monotonic_ns()
        ticks = rdtsc()
        after = time.monotonic_ns()
        if after - before < READING_NS:
            return (before + after) // 2, ticks
    return None
