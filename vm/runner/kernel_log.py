# SPDX-License-Identifier: MIT OR Apache-2.0
"""Find problems in a kernel log."""

import pathlib
import re

PATTERNS = pathlib.Path(__file__).resolve().parent.parent / "kernel-log"


def _pattern(name):
    lines = (PATTERNS / name).read_text().splitlines()
    return re.compile("|".join(line for line in lines if not line.startswith("#")))


PROBLEM = _pattern("problems")
HARMLESS = _pattern("harmless")
DEADLY = re.compile(r"\bOops\b|Kernel panic|[Uu]nable to handle kernel|BUG: unable to handle|BUG: kernel NULL|Internal error:")

REPORT_LINES = 60
END_OF_REPORT = re.compile(r"---\[ end |={60}")


# Bits 22 and up of RFLAGS are reserved and 0 (Intel's manual, volume 1, 3.4.3). QEMU's emulator sometimes takes
# another value for the flags of an interrupted instruction: see vm/README.md.
_FLAGS = re.compile(r"\bE?FLAGS: ([0-9a-f]{8,16})\b")
_RESERVED = 22


def flags_are_impossible(report):
    """Whether the processor entered the kernel, in the first registers of a report, with flags that none can have."""
    first = next((match for line in report if (match := _FLAGS.search(line))), None)
    return first is not None and int(first[1], 16) >> _RESERVED != 0


def is_problem(line):
    return bool(PROBLEM.search(line)) and not HARMLESS.search(line)


def reports(lines):
    """Each problem with the lines that belong to it."""
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
