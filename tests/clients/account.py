# SPDX-License-Identifier: MIT OR Apache-2.0
"""Accounts for every frame of a capture of the counting ADC: each is present or in a reported gap.
account.py REPORT [FILE]"""

import json
import sys

import numpy

PIECE = 4 << 20  # frames


def gaps_in(path):
    """Byte offset and length in frames of every jump in the numbers, and the number after the last."""
    gaps, expected, at = [], 0, 0
    with open(path, "rb") as file:
        while (frames := numpy.fromfile(file, dtype="<u8", count=PIECE)).size:
            numbers = numpy.concatenate(([expected], frames + 1))
            jumps = frames - numbers[:-1]
            for place in numpy.flatnonzero(jumps):
                gaps.append((at + 8 * int(place), int(jumps[place])))
            expected, at = int(frames[-1]) + 1, at + 8 * frames.size
    return gaps, expected, at


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    assert report["error"] is None and report["loss_known"], report
    rate = report["frames"] / report["seconds"]
    print(f"{report['frames']} frames at {rate / 1e6:.1f} million per second by {report['sink']}, "
          f"{report['lost_frames']} lost in {len(report['gaps'])} gaps, "
          f"CPU {100 * report['cpu_seconds'] / report['seconds']:.1f} %")
    if len(sys.argv) < 3:
        assert not report["gaps"], report["gaps"]
        return
    found, end, length = gaps_in(sys.argv[2])
    assert length == report["bytes"], (length, report["bytes"])
    for gap in report["gaps"]:
        here = [frames for at, frames in found if gap["at"] <= at <= gap["to"]]
        assert sum(here) == gap["frames"], (gap, here)
        found = [(at, frames) for at, frames in found if not gap["at"] <= at <= gap["to"]]
    assert not found, f"not told: {found}"
    assert end == report["frames"] + report["lost_frames"], end
    print(f"all numbers up to {end} accounted for")


main()
