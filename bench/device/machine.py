# SPDX-License-Identifier: MIT OR Apache-2.0
"""machine.py DEVICE: prints what the device is, as JSON, or why there is none and what to do."""

import json
import pathlib
import platform
import subprocess
import sys

HINT = "name an interpreter whose torch knows the device: PYTHON=/path/to/python3 bench/device/run; --device cpu tries the program alone"


def output(*command: str) -> str:
    """What a program prints, in one line; nothing if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return ""
    return " ".join(done.stdout.split()) if done.returncode == 0 else ""


def device(name: str) -> dict[str, object]:
    try:
        import numpy  # noqa: F401
        import torch
    except ImportError as error:
        raise SystemExit(f"{sys.executable}: {error}\nhint: {HINT}") from None
    facts: dict[str, object] = {"python": platform.python_version(), "torch": torch.__version__}
    if name == "cpu":
        return {"gpu": "none, the CPU", **facts}
    if not torch.cuda.is_available():
        raise SystemExit(f"torch {torch.__version__} of {sys.executable} sees no CUDA or HIP device\nhint: {HINT}")
    found = torch.cuda.get_device_properties(name)
    query = output("nvidia-smi", f"--id={torch.device(name).index or 0}", "--format=csv,noheader",
                   "--query-gpu=driver_version,pcie.link.gen.max,pcie.link.width.max")
    driver, *link = query.split(", ")
    amd = pathlib.Path("/sys/module/amdgpu/version")
    return {"gpu": found.name, "gpu_bytes": found.total_memory,
            "driver": driver or (amd.read_text().strip() if amd.exists() else "unknown"),
            "bus": f"PCIe {link[0]} x{link[1]}" if len(link) == 2 else "unknown",
            **facts, "runtime": f"HIP {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"}


def host(folder: str) -> dict[str, object]:
    """The machine, and the disk that has a folder."""
    memory = next(line for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    cpus = [line.split(": ", 1)[1] for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    source, _, kind = output("findmnt", "--noheadings", "--output", "SOURCE,FSTYPE", "--target", folder).partition(" ")
    # A folder of the disk may be mounted.
    source = source.split("[")[0]
    return {"kernel": platform.release(), "kernel_version": platform.version(), "machine": platform.machine(),
            "cpu": cpus[0] if cpus else "unknown", "cpus": len(cpus), "memory_bytes": int(memory.split()[1]) << 10,
            "file_system": kind or "unknown", "device": source or "unknown",
            "disk": output("lsblk", "--noheadings", "--nodeps", "--inverse", "--output", "NAME,MODEL", source) or "unknown"}


if __name__ == "__main__":
    print(json.dumps(device(sys.argv[1])))
