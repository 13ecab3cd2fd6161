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
    return processor.replace("aarch64", "arm64").replace("_", "-"), kernel, f"{int(page) >> 10} KiB"


def record(rows: dict[Place, Row]) -> None:
    """Replaces the rows of these places."""
    before, rest = PAGE.read_text().split(BEGIN)
    table, after = rest.split(END)
    lines = {}
    for line in table.strip().splitlines()[len(HEAD):]:
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        lines[tuple(cells[:3])] = line
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    for where, row in rows.items():
        passed = ", ".join(f"{tests} {count}" for tests, count in sorted(row.passed.items()))
        lines[where] = f"| {' | '.join(where)} | {passed} | {row.skipped} | {today} |"
    table = "\n".join([*HEAD, *(lines[where] for where in sorted(lines))])
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
