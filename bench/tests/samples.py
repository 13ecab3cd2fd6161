# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results with few rows."""

from figures.results import MIB, Result as found  # noqa: F401


def result(bench: str, *rows: dict, **facts: object) -> dict:
    return {"bench": bench, "kernel": "7.3.4", "cpus": 2, "runs": 1, **facts, "rows": list(rows)}


def way(size: int, name: str, **figures: float) -> dict:
    """A row of `cost`."""
    values = {phase: [value] for phase, value in {**figures, "total": sum(figures.values())}.items()}
    return {"size": size, "way": name, "copied": 0, "zeroed": 0, **values}


def cost(*rows: dict) -> dict:
    return result("cost", *rows, unit="instructions")


def ways(size: int) -> list[dict]:
    return [way(size, "memfd: read()", allocation=10.0, io=1100000.0, close=400000.0),
            way(size, "malloc: read()", allocation=10.0, io=800000.0, close=150000.0),
            way(size, "heap: allocate", allocation=133000.0, close=7000.0),
            way(size, "module: READ", allocation=187000.0, io=7400.0, close=9500.0),
            way(size, "module: LOAD", load=8000.0, close=900.0),
            {"size": size, "way": "series: heap flag", "unavailable": "this kernel lacks it"}]


COST = cost(way(4096, "module: READ", allocation=9000.0, io=9000.0, close=9000.0), *ways(8 * MIB), *ways(128 * MIB))


def load(size: int, name: str, total: float) -> dict:
    return {"size": size, "way": name, "total_ms": [total], "total_cpu_ms": [total / 2]}


LOAD = result("load", load(8 * MIB, "normal", 100.0), load(8 * MIB, "LOAD module direct", 25.0),
              {"size": 8 * MIB, "way": "LOAD heap direct", "unavailable": "no"},
              {"size": 1 << 40, "way": "normal", "unavailable": "no memory"})

COMPARE = result("compare", *({"size": 1 << 30, "way": name, "seconds": [seconds]} for name, seconds in (
    ("dmabuf-dio memfd", 0.3), ("fio 4 MiB x 8", 0.25), ("fio 4 MiB x 8, 4 KiB", 0.2), ("read()", 0.5))),
    {"size": 1 << 30, "way": "absent", "unavailable": "no"}, file_system="ext4", device="vda", tensors="few", processes=1)


def read(target: str, way: str, memory: str, depth: int, cost: float, iops: float = 1000.0) -> dict:
    """A row of `small`."""
    return {"target": target, "way": way, "memory": memory, "by": "us", "depth": depth, "per_read": [cost], "iops": [iops]}


SMALL = result("small", read("ext4", "gather", "lent", 32, 3300.0),
               {"target": "ext4", "way": "gather", "memory": "lent", "by": "us", "depth": 128, "failed": "EIO"},
               {"target": "ext4", "way": "io_uring polled", "memory": "user", "by": "us", "depth": 32, "unavailable": "no"},
               read("raw", "io_uring", "registered", 32, 3000.0, 2000.0), read("raw", "io_uring", "registered", 128, 2900.0, 2000.0),
               reads=20000)


def stream(to: str, name: str, block: int, cost: float) -> dict:
    return {"to": to, "way": name, "block": block, "mib_per_s": [1e8 / cost], "cpu_percent": [50.0], "per_mib": [cost]}


STREAM = result("stream", stream("nothing", "read()", 16 << 10, 465000.0), stream("nothing", "dma-buf", 16 << 10, 1100000.0),
                stream("file", "read()", MIB, 650000.0), stream("file", "dma-buf", MIB, 92000.0),
                {"to": "usb", "way": "dma-buf", "block": MIB, "unavailable": "no --usb FOLDER"}, total=512 * MIB)


def rate(rate: float, load: str, way: str, lost: float) -> dict:
    return {"load": load, "way": way, "rate": rate, "frames": [3 * rate - lost], "lost": [lost], "made_per_s": [rate]}


RATES = result("rates", rate(1e3, "idle", "dmabuf-dio", 0.0), rate(1e3, "idle", "iio_rwdev", 0.0),
               rate(62.5e6, "idle", "dmabuf-dio", 0.0), rate(62.5e6, "idle", "iio_rwdev", 93.75e6),
               rate(62.5e6, "busy", "dmabuf-dio", 1875.0),
               {"load": "busy", "way": "iio_rwdev", "rate": 62.5e6, "failed": "EIO"}, frame=8, seconds=3)


