# SPDX-License-Identifier: MIT OR Apache-2.0
"""Output of the benchmarks, with few rows."""

import pathlib

from figures import compact


def keep(path: pathlib.Path, printed: dict) -> None:
    """In the form that bench/run stores."""
    path.write_text(compact.text(compact.compact(printed, "dmabuf-dio-bench")))


def summary(value: float) -> dict:
    return {"median": value, "min": value, "max": value, "values": [value]}


def way(name: str, reason: str | None = None, **figures: float) -> dict:
    phases = {phase: summary(figures[phase]) if phase in figures else None
              for phase in ("allocation", "io", "load", "close")}
    if reason:
        return {"name": name, "copied": 0.0, "zeroed": 0.0, "status": "unavailable",
                "reason": reason, "errno": "EINVAL"}
    return {"name": name, "copied": 0.0, "zeroed": 0.0, "status": "verified", "reason": None,
            "errno": None, **phases, "total": summary(sum(figures.values()))}


def ways() -> list[dict]:
    return [way("memfd: read()", allocation=10.0, io=1100000.0, close=400000.0),
            way("malloc: read()", allocation=10.0, io=800000.0, close=150000.0),
            way("heap: allocate", allocation=133000.0, close=7000.0),
            way("module: READ", allocation=187000.0, io=7400.0, close=9500.0),
            way("module: LOAD", load=8000.0, close=900.0),
            way("series: heap flag", reason="this kernel lacks it")]


COST = {
    "schema": 1, "bench": "cost", "unit": "instructions", "kernel": "7.3.4", "commit": "abc",
    "runs": 3, "sizes": [
        {"bytes": 4096, "per": "transfer", "reason": None,
         "ways": [way("module: READ", allocation=9000.0, io=9000.0, close=9000.0)]},
        {"bytes": 8 << 20, "per": "MiB", "reason": None, "ways": ways()},
        {"bytes": 128 << 20, "per": "MiB", "reason": None, "ways": ways()},
    ],
}

LOAD = {
    "schema": 1, "bench": "load", "kernel": "7.3.4", "runs": 3, "sizes": [
        {"bytes": 8 << 20, "reason": None, "rows": [
            {"name": "normal", "total_ms": summary(100.0)},
            {"name": "LOAD module direct", "total_ms": summary(25.0)},
            {"name": "LOAD heap direct", "status": "unavailable"}]},
        {"bytes": 1 << 40, "reason": "no memory", "rows": []},
    ],
}

COMPARE = {
    "schema": 1, "bench": "compare", "kernel": "6.18", "cpus": 2, "file_system": "ext4",
    "device": "vda", "tensors": "few", "processes": 1, "sizes": [
        {"bytes": 1 << 30, "runs": 5,
         "base": {"name": "fio", "is_ceiling": True, "gb_per_s": (1 << 30) / 1e9 / 0.25}, "rows": [
             {"name": "dmabuf-dio memfd", "seconds": summary(0.3)},
             {"name": "fio", "seconds": summary(0.25)},
             {"name": "read()", "seconds": summary(0.5)},
             {"name": "absent", "status": "unavailable"}]},
    ],
}


def small_line(target: str, way: str, memory: str, points: list[dict]) -> dict:
    return {"target": target, "path": "/mnt", "way": way, "memory": memory, "by": "us",
            "points": points}


def small_point(depth: int, cost: float, iops: float) -> dict:
    return {"depth": depth, "status": "verified", "reason": None, "errno": None,
            "per_read": summary(cost), "iops": summary(iops)}


SMALL = {
    "schema": 1, "bench": "small", "unit": "instructions", "kernel": "7.3.4", "runs": 3,
    "reads": 20000, "depths": [32, 128], "lines": [
        small_line("ext4", "gather", "lent",
                   [small_point(32, 3300.0, 1000.0),
                    {"depth": 128, "status": "failed", "reason": "EIO", "errno": "EIO"}]),
        small_line("ext4", "io_uring polled", "user",
                   [{"depth": depth, "status": "unavailable", "reason": "no", "errno": None}
                    for depth in (32, 128)]),
        small_line("raw", "io_uring", "registered",
                   [small_point(32, 3000.0, 2000.0), small_point(128, 2900.0, 2000.0)]),
    ],
}


def stream_row(to: str, way: str, block: int, cost: float) -> dict:
    return {"to": to, "way": way, "block": block, "status": "verified", "reason": None,
            "errno": None, "mib_per_s": summary(1e8 / cost), "cpu_percent": summary(50.0),
            "per_mib": summary(cost)}


STREAM = {
    "schema": 1, "bench": "stream", "unit": "instructions", "kernel": "7.3.4", "runs": 3,
    "total": 512 << 20, "rows": [
        stream_row("nothing", "read()", 16 << 10, 465000.0),
        stream_row("nothing", "dma-buf", 16 << 10, 1100000.0),
        stream_row("file", "read()", 1 << 20, 650000.0),
        stream_row("file", "dma-buf", 1 << 20, 92000.0),
        {"to": "usb", "way": "dma-buf", "block": 1 << 20, "status": "unavailable",
         "reason": "no --usb FOLDER", "errno": "ENODEV"},
    ],
}


def rate_row(rate: float, load: str, way: str, lost: float) -> dict:
    return {"rate": rate, "load": load, "way": way, "block": None, "status": "verified", "reason": None,
            "errno": None, "frames": summary(3 * rate - lost), "lost": summary(lost), "gaps": summary(1.0),
            "device_lost": summary(lost + 10), "made_per_s": summary(rate)}


RATES = {
    "schema": 1, "bench": "rates", "kernel": "7.3.4", "cpus": 2, "device": "stream-adc", "frame": 8,
    "seconds": 3, "runs": 1, "rows": [
        rate_row(1e3, "idle", "dmabuf-dio", 0.0),
        rate_row(1e3, "idle", "iio_rwdev", 0.0),
        rate_row(62.5e6, "idle", "dmabuf-dio", 0.0),
        rate_row(62.5e6, "idle", "iio_rwdev", 93.75e6),
        rate_row(62.5e6, "busy", "dmabuf-dio", 1875.0),
        {"rate": 62.5e6, "load": "busy", "way": "iio_rwdev", "status": "failed", "reason": "EIO", "errno": "EIO"},
    ],
}
