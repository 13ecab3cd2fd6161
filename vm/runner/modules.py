# SPDX-License-Identifier: MIT OR Apache-2.0
"""Build the project's kernel modules for a guest kernel, from a copy of their sources.

kbuild writes its outputs beside the sources. A copy per kernel keeps builds for different
kernels apart and makes rebuilds incremental.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

from .commands import environment, need
from .messages import Failure
from .paths import REPO, lock

MAIN = "module"
COVERAGE = "coverage"
BUILT = re.compile(r".*\.(o|ko|mod|mod\.c|a|order|symvers|cmd)$|\..*\.cmd$|\.tmp_.*|modules\.order|Module\.symvers")
# Printed for every module on Debian's headers, and harmless.
NOISE = re.compile(r"Skipping BTF generation|the compiler differs from the one|"
                   r"pahole version differs|The kernel was built (by|with):|You are using:")


def directory(kernel, covered=False):
    return REPO / "build" / f"modules-{kernel.label}{'-coverage' if covered else ''}"


def ensure(kernel, covered=False):
    """The directory with the .ko files, and their paths in load order. If they are covered, each of their
    basic blocks is reported to the first of them. The list is empty if there are no sources."""
    target = directory(kernel, covered)
    folders = [MAIN] + sorted(f"sim/{path.name}" for path in (REPO / "kernel/sim").glob("*"))
    if covered:
        folders.insert(0, COVERAGE)
    folders = [folder for folder in folders if (REPO / "kernel" / folder / "Kbuild").exists()]
    if not folders:
        return target, []
    with lock(f"{target.name}-{hashlib.sha256(str(REPO).encode()).hexdigest()[:8]}"):
        wanted = state(kernel, folders)
        record = target / "state.json"
        if not record.exists() or json.loads(record.read_text()) != wanted:
            make(kernel, target, folders, wanted, record, ["KCFLAGS=-fsanitize-coverage=trace-pc -g"] if covered else [])
    return target, [target / name for name in json.loads((target / "order.json").read_text())]


def sources(folder):
    """Source files of one folder, relative to kernel/."""
    root = REPO / "kernel"
    for path in sorted((root / folder).rglob("*")):
        if path.is_file() and not BUILT.match(path.name):
            yield str(path.relative_to(root))


def state(kernel, folders):
    """The inputs of a build: the kernel's build and every source file."""
    files = {}
    for folder in folders:
        for name in sources(folder):
            status = (REPO / "kernel" / name).stat()
            files[name] = [status.st_mtime_ns, status.st_size]
    return {"kernel": kernel_state(kernel), "files": files}


def kernel_state(kernel):
    symbols = kernel.build_dir / "Module.symvers"
    return [str(kernel.build_dir), kernel.release, symbols.stat().st_mtime_ns]


def make(kernel, target, folders, wanted, record, flags):
    previous = json.loads(record.read_text()) if record.exists() else {}
    if previous.get("kernel") != wanted["kernel"]:
        shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True, exist_ok=True)
    # Written now, so that a failed build does not count as up to date.
    record.write_text(json.dumps({"kernel": wanted["kernel"], "files": {}}))
    copy = target / "src"
    synchronise(copy, wanted["files"])
    for old in target.glob("*.ko"):
        old.unlink()
    order = []
    build(kernel, copy, folders, flags)
    for folder in folders:
        for module in sorted((copy / folder).glob("*.ko")):
            shutil.copy2(module, target / module.name)
            order.append(module.name)
    (target / "order.json").write_text(json.dumps(order))
    record.write_text(json.dumps(wanted))


def synchronise(copy, files):
    """Update the copy; keep the originals' timestamps, which make compares."""
    for name, (changed, size) in files.items():
        path = copy / name
        if path.exists():
            status = path.stat()
            if (status.st_mtime_ns, status.st_size) == (changed, size):
                continue
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPO / "kernel" / name, path)
    for path in sorted(copy.rglob("*")):
        name = str(path.relative_to(copy))
        if path.is_file() and name not in files and path.suffix in (".c", ".h", ".S"):
            if not path.name.endswith(".mod.c"):
                path.unlink()


def build(kernel, copy, folders, flags):
    """All in one run of kbuild, which takes seconds to begin."""
    (copy / "Kbuild").write_text(f"obj-m := {' '.join(f'{folder}/' for folder in folders)}\n")
    command = [need("make"), "-s", f"-j{os.cpu_count()}", *kernel.arch.make(), "-C", kernel.build_dir, f"M={copy}", "W=1", *flags, "modules"]
    result = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors="replace", env=environment())
    for line in result.stdout.splitlines():
        if not NOISE.search(line):
            # Show the paths of the original sources in warnings.
            print(line.replace(f"{copy}/", "kernel/"), file=sys.stderr)
    if result.returncode:
        raise Failure(f"the modules in kernel/ do not build for Linux {kernel.label}")
