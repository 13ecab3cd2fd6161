# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the cost of all ways with a baseline. Exit status: 0, or 1 if something is worse.

Of several measurements, each of another boot, the best figure counts."""

import argparse
import dataclasses
import pathlib
import sys

from . import cost

# Thresholds, relative and absolute; a difference must exceed both. Per MiB: a run covers 64 MiB, and
# three additional interrupts or timer ticks of about 5,000 instructions each are 240. Per small transfer:
# whether the disk answers before the caller sleeps, which costs 5,000, depends on the host.
PART = 0.05
LEAST = {"MiB": 250.0, "transfer": 6000.0}
# Ways that transfer twice, so that the caller may sleep twice.
TWICE = ", again"


@dataclasses.dataclass(frozen=True)
class Finding:
    way: str
    size: cost.Size
    phase: str
    text: str

    def __str__(self) -> str:
        return f"{self.way}, {self.size.name}, {self.phase}: {self.text}"


@dataclasses.dataclass(frozen=True)
class Findings:
    worse: list[Finding]
    better: list[Finding]
    # How many figures were compared
    count: int


def compare(baseline: cost.Cost, *now: cost.Cost) -> Findings:
    """The figures of the baseline that are worse, missing or better now. New ones are ignored."""
    worse: list[Finding] = []
    better: list[Finding] = []
    count = 0
    for size in baseline.sizes:
        found = [there for each in now for there in each.sizes if there.bytes == size.bytes]
        for way in size.ways.values():
            there = [each.ways[way.name] for each in found if way.name in each.ways]
            for phase, old in way.figures.items():
                count += 1
                medians = [each.figures[phase].median for each in there if phase in each.figures]
                if not medians:
                    why = next((each.reason for each in (*there, *found) if each.reason), "not measured")
                    worse.append(Finding(way.name, size, phase, f"{old.median:,.0f} before, now missing: {why}"))
                    continue
                new = min(medians)
                change = new - old.median
                least = LEAST[size.per] * (2 if way.name.endswith(TWICE) else 1)
                if abs(change) <= max(PART * old.median, least):
                    continue
                percent = f" ({change / old.median:+.1%})" if old.median > 0 else ""
                text = f"{old.median:,.0f} before, now {new:,.0f}{percent} per {size.per}"
                (worse if change > 0 else better).append(Finding(way.name, size, phase, text))
    return Findings(worse, better, count)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m figures.check", description=__doc__)
    parser.add_argument("baseline", type=pathlib.Path)
    parser.add_argument("now", type=pathlib.Path, nargs="+")
    parser.add_argument("--again", type=pathlib.Path, metavar="FILE",
                        help="write the options of `dmabuf-dio-bench cost` that measure what is worse, one per line")
    args = parser.parse_args(arguments)
    baseline, *now = (cost.read(path) for path in (args.baseline, *args.now))
    for path, each in zip(args.now, now):
        if baseline.unit != each.unit:
            print(f"{path} counts {each.unit}, the baseline {baseline.unit}: run it in a guest with "
                  "vm/run --icount", file=sys.stderr)
            return 1
    findings = compare(baseline, *now)
    for finding in findings.better:
        print(f"better: {finding}")
    if findings.better and len(now) == 1:
        print(f"The baseline can be renewed with: cp {args.now[0]} {args.baseline}")
    for finding in findings.worse:
        print(f"WORSE: {finding}")
    print(f"{findings.count} figures, {len(findings.worse)} worse, {len(findings.better)} better "
          f"by more than {PART:.0%}")
    if args.again:
        sizes = {finding.size.bytes for finding in findings.worse}
        ways = {finding.way for finding in findings.worse}
        options = [f"--sizes={','.join(map(str, sorted(sizes)))}", *(f"--only={way}" for way in sorted(ways))]
        args.again.write_text("\n".join(options) + "\n")
    return 1 if findings.worse or findings.count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
