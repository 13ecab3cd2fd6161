# SPDX-License-Identifier: MIT OR Apache-2.0
"""The transcripts of docs/install.md, and the rows of docs/reach.md, from the results of guests."""

import pathlib
import re
import sys

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(REPO / "tests"), str(REPO / "vm")]
import reach  # noqa: E402
from runner.messages import Failure  # noqa: E402

PAGE = REPO / "docs" / "install.md"
# The page shows this one; of both it has the times.
SHOWN = "debian-12"
BEGIN_ROWS = "<!-- begin: packages/guests --record -->"
HEAD_ROWS = ["| distribution | installed with | then upgraded to | checks that passed | on |", "|---|---|---|---|---|"]
BEGIN_TIMES = "<!-- begin: packages/guests --record, times -->"
HEAD_TIMES = ["| distribution | DKMS and libraries, by Debian | the packages without the module | the module, with its build | `python3 -m venv` | the wheel | on |",
              "|---|---|---|---|---|---|---|"]
# Of what apt and pip print, a transcript has the lines that are about dmabuf-dio and DKMS.
ABOUT = re.compile(r"^(Setting up|Removing|Successfully installed) .*dmabuf|^Building (for|initial|module)|^(Loading|Deleting) .*dmabuf|"
                   r"^ *- Installing to|^Installing /lib|^dkms: |^Processing \S*dmabuf")
# An emulated guest's speed says nothing.
SPEED = re.compile(r"\b[KMG]B/s|^CPU |^real ")
LONGEST = 18


def shown(command: dict) -> list[str]:
    """A command and its output, shortened."""
    line = re.sub(r" --yes\b", "", command["line"])
    lines = command["output"].replace("\r", "").splitlines()
    if line.startswith("apt ") or "/pip " in line:
        kept = [each.rstrip() if ABOUT.search(each) else None for each in lines]
    else:
        kept = [None if SPEED.search(each) else each.rstrip() for each in lines]
        kept = kept[:LONGEST] + [None] * (len(kept) > LONGEST)
    text: list[str] = []
    for each in kept:
        if each is not None:
            text.append(each)
        elif not text or text[-1] != "[...]":
            text.append("[...]")
    return [f"{command['prompt']} {line}", *text]


def blocks(results: list[dict]) -> dict[str, list[str]]:
    """The lines of each chapter."""
    return {chapter: [line for command in commands for line in shown(command)]
            for result in results for chapter, commands in result["transcripts"].items()}


def mark(chapter: str) -> str:
    return f"<!-- begin: packages/guests --record, {chapter} -->"


def chapters() -> list[str]:
    return re.findall(mark(r"(\w+)"), PAGE.read_text().replace(BEGIN_TIMES, ""))


def documented(chapter: str) -> list[str]:
    """The lines that the page has."""
    block = PAGE.read_text().split(mark(chapter))[1].split(reach.END)[0].strip().splitlines()
    return block[1:-1]


def form(lines: list[str]) -> list[str]:
    """Lines without what differs from one run to the next."""
    return [re.sub(r"[\d.,]+|\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b", "N", line).replace("  ", " ") for line in lines]


def compare(name: str, results: list[dict]) -> None:
    """Fails if the page shows something else than what happened."""
    found = blocks(results)
    for chapter in chapters() if name == SHOWN else ():
        said, wanted = form(found[chapter]), form(documented(chapter))
        if said != wanted:
            different = next((pair for pair in zip([*said, ""], [*wanted, ""]) if pair[0] != pair[1]), ("", ""))
            raise Failure(f"docs/install.md, {chapter}, shows {different[1]!r} where the guest printed {different[0]!r}: packages/guests --record")


def title_of(name: str) -> str:
    return name.replace("debian-", "Debian ")


def record(name: str, results: list[dict]) -> None:
    title = title_of(name)
    kernels = [f"Linux {each['release']}" for each in results]
    passed = sum(each["passed"] for each in results)
    reach.replace(BEGIN_ROWS, HEAD_ROWS, {(title,): f"| {title} | {kernels[0]} | {kernels[-1]} | {passed} | {reach.today()} |"})
    record_chapters(name, results)


def record_chapters(name: str, results: list[dict]) -> None:
    """Writes the chapters that there are results of."""
    found = blocks(results) if name == SHOWN else {}
    for chapter in chapters():
        if chapter in found:
            write(mark(chapter), ["```text", *found[chapter], "```"])


def record_times(name: str, here: dict[str, float]) -> None:
    title = title_of(name)
    times = " | ".join(f"{here[what]:.0f} s" for what in ("needed", "packages", "module", "venv", "wheel"))
    rows = [line for line in table(BEGIN_TIMES)[2:] if not line.startswith(f"| {title} |")]
    write(BEGIN_TIMES, [*HEAD_TIMES, *sorted([*rows, f"| {title} | {times} | {reach.today()} |"])])


def table(begin: str) -> list[str]:
    return PAGE.read_text().split(begin)[1].split(reach.END)[0].strip().splitlines()


def write(begin: str, lines: list[str]) -> None:
    before, rest = PAGE.read_text().split(begin)
    _, after = rest.split(reach.END, 1)
    PAGE.write_text("\n".join([before + begin, *lines, reach.END + after]))
