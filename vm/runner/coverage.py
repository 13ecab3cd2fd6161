# SPDX-License-Identifier: MIT OR Apache-2.0
"""The basic blocks of the module that a guest has reached, by what kernel/coverage says in the log when it is unloaded."""

import bisect
import os
import pathlib
import re

from .messages import say

SECTION = re.compile(r"guest: section (\S+) 0x([0-9a-f]+)")
REACHED = re.compile(r"coverage ([0-9a-f]+):((?: [0-9a-f]+)+)")


def write(folder, kernel, module_directory, log):
    """A line for the module, then one for each block: its section, and the address to which its call of
    __sanitizer_cov_trace_pc() returns, from the section's start. A guest that died has none."""
    text = log.read_text(errors="replace") if log.exists() else ""
    sections = sorted((int(address, 16), name) for name, address in SECTION.findall(text))
    starts = [start for start, _ in sections]
    blocks = set()
    for base, offsets in REACHED.findall(text):
        for offset in offsets.split():
            address = int(base, 16) + int(offset, 16)
            start, name = sections[bisect.bisect_right(starts, address) - 1]
            blocks.add(f"{name} {address - start:x}")
    if not blocks:
        say("--coverage: nothing was reached, or the module was not unloaded")
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{kernel.label}-{os.getpid()}", "w", encoding="ascii") as file:
        print(module_directory / "dmabuf_dio.ko", *sorted(blocks), sep="\n", file=file)
