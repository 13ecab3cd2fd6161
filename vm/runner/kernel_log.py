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
