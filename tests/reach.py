# SPDX-License-Identifier: MIT OR Apache-2.0
"""The table of processors, kernels and page sizes in docs/reach.md: what passed there, and when."""

import dataclasses
import datetime
import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "reach.md"
BEGIN, END = "<!-- begin: tests/matrix --record -->", "<!-- end -->"
HEAD = ["| processor | kernel | pages | passed | skipped | on |", "|---|---|---|---|---|---|"]
WHERE = re.compile(r"^where: (\S+) (\S+) (\d+)$", re.M)


@dataclasses.dataclass
class Row:
    """What one kernel passed."""

    passed: dict[str, int] = dataclasses.field(default_factory=dict)
    skipped: int = 0

    def add(self, tests: str, passed: int, skipped: int) -> None:
        self.passed[tests] = self.passed.get(tests, 0) + passed
        self.skipped += skipped


Place = tuple[str, str, str]    # processor, kernel, size of a page


def place(log: str) -> Place | None:
    """Where the log says that its tests ran."""
    found = WHERE.search(log)
    if found is None:
        return None
    processor, kernel, page = found.groups()
    processor = processor.replace("aarch64", "arm64").replace("_", "-")
    if "/" in processor:
        processor = "{}, {} programs".format(*processor.split("/"))
    return processor, kernel, f"{int(page) >> 10} KiB"


def record(rows: dict[Place, Row]) -> None:
    """Replaces the rows of these places."""
    lines = {}
    for where, row in rows.items():
        passed = ", ".join(f"{tests} {count}" for tests, count in sorted(row.passed.items()))
        lines[where] = f"| {' | '.join(where)} | {passed} | {row.skipped} | {today()} |"
    replace(BEGIN, HEAD, lines)


def replace(begin: str, head: list[str], rows: dict[tuple[str, ...], str], keep: bool = True) -> None:
    """Replaces rows of the table after a mark, by their first cells; the other rows stay if they are to be kept."""
    before, rest = PAGE.read_text().split(begin)
    table, after = rest.split(END, 1)
    lines = {}
    first = len(next(iter(rows)))
    for line in table.strip().splitlines()[len(head):] if keep else ():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        lines[tuple(cells[:first])] = line
    lines |= rows
    table = "\n".join([*head, *(lines[key] for key in sorted(lines, key=natural))])
    PAGE.write_text(f"{before}{begin}\n{table}\n{END}{after}")


def natural(key: tuple[str, ...]) -> list[list[tuple[int, str]]]:
    """Numbers in names are sorted as numbers."""
    return [[(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", cell)] for cell in key]


def today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()
