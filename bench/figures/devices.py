# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads to a device, beside other loaders and the floors: the disk alone and the bus alone."""

from collections.abc import Iterable, Iterator

from .results import MIB, Result, Row, size_name
from .show import columns, number

# Of the speed of the slower floor
OF_FLOOR = 0.95
# Of the file, that may have been in the page cache before a load
WARM = 0.01

HEAD = ("way", "seconds", "min - max", "GB/s", "of the floor", "CPU s", "process", "pinned", "page cache", "machine")


def models(rows: Iterable[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each file, with its description."""
    each: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        each.setdefault((row.size, row.tensors), []).append(row)
    for (size, tensors), found in each.items():
        yield f"{size_name(size)}, {tensors} tensors", found


def fastest(rows: Iterable[Row], role: str) -> float | None:
    return min((row.seconds.median for row in rows if row.role == role and row.figures), default=None)


def floor(rows: list[Row]) -> float | None:
    """Seconds of the slower of disk and bus."""
    disk, bus = fastest(rows, "disk"), fastest(rows, "bus")
    return None if disk is None or bus is None else max(disk, bus)


def missed(rows: Iterable[Row]) -> list[str]:
    """Where the goal is missed, and where that cannot be told."""
    found = []
    for model, of_model in models(rows):
        least = floor(of_model)
        if least is None:
            found.append(f"{model}: there are no figures of the disk alone, or of the bus alone")
        found += [f"{model}: {row.way}: {row.different}" for row in of_model if "different" in row.data]
        for row in of_model:
            if row.figures and row.warm_bytes.max > WARM * row.size:
                found.append(f"{model}: {row.way}: {number(row.warm_bytes.max / MIB)} MiB were in the page cache before the load, "
                             "or the kernel does not tell")
        for ours in (row for row in of_model if row.role == "ours"):
            if not ours.figures:
                if "different" not in ours.data:
                    found.append(f"{model}: {ours.way}: {ours.reason}")
                continue
            if least is not None and least / ours.seconds.median < OF_FLOOR:
                found.append(f"{model}: {ours.way} reaches {least / ours.seconds.median:.2f} of the slower of disk and bus, "
                             f"the goal is {OF_FLOOR}")
            found += [f"{model}: {ours.way} takes {ours.seconds.median / row.seconds.median:.2f} of the time of {row.way}"
                      for row in of_model if row.role == "theirs" and row.figures and row.seconds.median < ours.seconds.median]
    return found


def table(found: Result) -> str:
    """Of each file. Memory in MiB."""
    def cells(row: Row, least: float | None) -> list[str]:
        time = row.seconds
        memory = (row.process_bytes, row.pinned_bytes, row.cached_bytes, row.machine_bytes)
        return [row.way, f"{time.median:.3f}", f"{time.min:.3f} - {time.max:.3f}", f"{row.size / time.median / 1e9:.2f}",
                f"{least / time.median:.2f}" if least else "", f"{row.cpu_seconds.median:.2f}", *(number(each.median / MIB) for each in memory)]

    def text(rows: list[Row]) -> str:
        least = floor(rows)
        reasons = [f"  {row.way}: {row.reason}\n" for row in rows if not row.figures]
        return columns(HEAD, [cells(row, least) for row in rows if row.figures]) + "".join(reasons)
    return "\n".join(f"{model}\n{text(rows)}" for model, rows in models(found.rows))
