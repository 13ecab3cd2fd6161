# SPDX-License-Identifier: MIT OR Apache-2.0
"""Build a kernel from configuration fragments; rebuild it when they or the source change."""

import hashlib
import os
import re
import shutil

from .commands import run, run_logged
from .messages import Failure, say
from .paths import VM, cache, lock

STAMP = "dmabuf-dio.stamp"


def ensure(name, tree, fragments):
    """The build directory of kernel `name`, with vmlinux and the files that module builds need."""
    directory = cache(f"build-{name}{tree.label}")
    paths = [VM / "configs" / fragment for fragment in fragments]
    digest = hashlib.sha256(tree.identity.encode())
    for path in paths:
        digest.update(path.read_bytes())
    wanted = digest.hexdigest()
    stamp = directory / STAMP
    with lock(directory.name):
        if not stamp.exists() or stamp.read_text() != wanted:
            directory.mkdir(exist_ok=True)
            stamp.unlink(missing_ok=True)
            configure(tree.path, directory, paths)
            compile_kernel(name, tree.path, directory)
            stamp.write_text(wanted)
    return directory


def make(source, directory):
    """Use ccache if it is installed: the kernels have much in common, and rebuilding after a deleted
    cache is fast."""
    command = ["make", "-C", source, f"O={directory}"]
    return [*command, "CC=ccache gcc"] if shutil.which("ccache") else command


def configure(source, directory, fragments):
    config = directory / ".config"
    before = config.read_bytes() if config.exists() else b""
    command = make(source, directory)
    run([*command, "-s", "tinyconfig"])
    run([str(source / "scripts/kconfig/merge_config.sh"), "-m", "-O", directory,
         config, *fragments], cwd=source)
    run([*command, "-s", "olddefconfig"])
    check(config, fragments)
    if config.read_bytes() != before:
        say(f"configured {directory}")


def options(path):
    """Option names and values of a configuration; "n" where an option is not set."""
    found = {}
    for line in path.read_text().splitlines():
        if match := re.fullmatch(r"(CONFIG_\w+)=(.*)", line):
            found[match[1]] = match[2]
        elif match := re.fullmatch(r"# (CONFIG_\w+) is not set", line):
            found[match[1]] = "n"
    return found


def check(config, fragments):
    """Kconfig silently drops an option whose dependency is missing; fail instead."""
    wanted = {}
    for fragment in fragments:
        wanted |= options(fragment)
    got = options(config)
    wrong = [f"  {name}={value} became {got.get(name, 'n')}"
             for name, value in wanted.items() if got.get(name, "n") != value]
    if wrong:
        raise Failure("these options have no effect in the kernel configuration:\n" + "\n".join(wrong))


def compile_kernel(name, source, directory):
    jobs = os.cpu_count() or 1
    log = directory / "build.log"
    log.unlink(missing_ok=True)
    say(f"building Linux {name} with {jobs} jobs, log: {log}")
    # QEMU boots vmlinux directly, so no compressed image is needed.
    run_logged(f"Linux {name}", [*make(source, directory), f"-j{jobs}", "vmlinux", "modules"], log)
