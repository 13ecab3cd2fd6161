# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of docs/reach.md: passed tests by processor, kernel and page size; the way of data by file
system; and the dates."""

import dataclasses
import datetime
import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "reach.md"
END = "<!-- end -->"
BEGIN = "<!-- begin: tests/matrix --record -->"
HEAD = ["| processor | kernel | pages | passed | skipped | on |", "|---|---|---|---|---|---|"]
BEGIN_FILES = "<!-- begin: tests/matrix files --record -->"
HEAD_FILES = ["| files on | kernel | READ | LOAD | READ_FIXED | load | gather | WRITE | WRITE_FIXED | save | on |",
              "|---|---|---|---|---|---|---|---|---|---|---|"]
FILES = re.compile(r"^files: (.*)$", re.M)
LEFT_OUT = re.compile(r"^left out: ([^:]*): (.*)$", re.M)
WHERE = re.compile(r"^where: (\S+) (\S+) (\d+)$", re.M)


@dataclasses.dataclass
class Row:
    """The tests that one kernel passed."""

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
    before, table, after = parts(begin)
    lines = {}
    first = len(next(iter(rows)))
    for line in table[len(head):] if keep else ():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        lines[tuple(cells[:first])] = line
    lines |= rows
    write(before, [*head, *(lines[key] for key in sorted(lines, key=natural))], after)


def record_files(logs: list[str]) -> None:
    """Replaces the rows of these logs' kernels, and their omitted tests."""
    rows: list[tuple[str, str, str]] = []
    missing: list[str] = []
    kernels = set()
    for log in logs:
        where = place(log)
        if where is None:
            continue
        kernel = where[1]
        kernels.add(kernel)
        for row in FILES.findall(log):
            name, _, cells = row.partition(" | ")
            rows.append((name, kernel, f"| {name} | {kernel} | {cells} | {today()} |"))
        missing += [f"- {name}, {kernel}: {reason}" for name, reason in LEFT_OUT.findall(log)]
    before, table, after = parts(BEGIN_FILES)
    for line in table:
        if line.startswith("| "):
            name, kernel = [cell.strip() for cell in line.strip("| ").split("|")][:2]
            if kernel not in kernels and name != "files on":
                rows.append((name, kernel, line))
        elif line.startswith("- ") and not any(f", {kernel}: " in line for kernel in kernels):
            missing.append(line)
    # In the order of the log, the kernels of one file system together
    order = list(dict.fromkeys(name for name, _, _ in rows))
    lines = [line for _, _, line in sorted(rows, key=lambda row: (order.index(row[0]), row[1]))]
    left_out = ["", "Left out:", "", *sorted(missing)] if missing else []
    write(before, [*HEAD_FILES, *lines, *left_out], after)


def parts(begin: str) -> tuple[str, list[str], str]:
    """The page before a table with its mark, the lines of the table, and the page behind it with its mark."""
    before, rest = PAGE.read_text().split(begin)
    table, after = rest.split(END, 1)
    return before + begin, table.strip().splitlines(), END + after


def write(before: str, lines: list[str], after: str) -> None:
    table = "\n".join(lines)
    PAGE.write_text(f"{before}\n{table}\n{after}")


def natural(key: tuple[str, ...]) -> list[list[tuple[int, str]]]:
    """Numbers in names are sorted as numbers."""
    return [[(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", cell)] for cell in key]


def today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()
