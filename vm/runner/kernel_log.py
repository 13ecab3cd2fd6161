# SPDX-License-Identifier: MIT OR Apache-2.0
"""Find what is wrong in a kernel log."""

import re

PROBLEM = re.compile("|".join((
    r"\bBUG\b", r"WARNING:", r"\bOops\b", r"Kernel panic", r"general protection fault",
    r"unable to handle", r"KASAN", r"UBSAN", r"KCSAN", r"KFENCE:",
    # lockdep
    r"possible (circular|recursive|irq lock inversion)", r"inconsistent lock state",
    r"bad unlock balance", r"held lock freed", r"lock held when returning to user space",
    r"suspicious RCU usage", r"Invalid wait context", r"INFO: trying to register non-static key",
    r"turning off the locking correctness validator", r"lock(s)? still held",
    # sleeping and scheduling
    r"sleeping function called", r"scheduling while atomic", r"blocked for more than",
    r"soft lockup", r"hard LOCKUP", r"rcu.*(detected.*stall|self-detected)", r"workqueue lockup",
    # memory
    r"kmemleak: (unreferenced object|Kernel memory leak detector disabled|\d+ new suspected)",
    r"Bad page", r"refcount_t:", r"list_(add|del) corruption", r"ODEBUG:",
    r"Padding overwritten", r"Poison overwritten", r"Redzone overwritten", r"SLUB: Unable",
    # devices
    r"DMA-API: (?!preallocated|debugging enabled|debugging facilities|enable driver filter)",
    r"DMAR: .*(fault|Fault)",
)))
# Lines that look like problems and are none, said while booting.
HARMLESS = re.compile(r"Spectre V2 : WARNING|KernelAddressSanitizer initialized"
                      # Its own memory ran out, which tests that inject faults bring about.
                      r"|DMA-API: cacheline tracking ENOMEM")
DEADLY = re.compile(r"\bOops\b|Kernel panic|BUG: unable to handle|BUG: kernel NULL")

REPORT_LINES = 60
END_OF_REPORT = re.compile(r"---\[ end |={60}")


def is_problem(line):
    return bool(PROBLEM.search(line)) and not HARMLESS.search(line)


def reports(lines):
    """Each problem with what the kernel says about it."""
    found = []
    number = 0
    while number < len(lines):
        if not is_problem(lines[number]):
            number += 1
            continue
        end = number + 1
        while end < len(lines) and end - number < REPORT_LINES:
            if END_OF_REPORT.search(lines[end]) and end > number + 2:
                break
            if "guest: " in lines[end]:
                break
            end += 1
        found.append(lines[number:end])
        number = end
    return found
