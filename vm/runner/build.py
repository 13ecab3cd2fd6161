# SPDX-License-Identifier: MIT OR Apache-2.0
"""Build a kernel from configuration fragments; rebuild it when they or the source change."""

import hashlib
import os
import re
import shutil
from pathlib import Path

from .commands import run, run_logged
from .messages import Failure, say
from .paths import VM, lock

STAMP = "dmabuf-dio.stamp"


def ensure(label, tree, names, arch, variables=()):
    """The build directory of a kernel, with its image and the files that module builds need. `variables` are kbuild's."""
    # In the tree, so that kbuild uses relative names, and ccache finds results of another tree
    directory = tree.path / f"build-{label}"
    paths = list(fragments(names, arch))
    digest = hashlib.sha256(tree.identity.encode())
    for path in paths:
        digest.update(path.read_bytes())
    digest.update(" ".join(variables).encode())
    wanted = digest.hexdigest()
    stamp = directory / STAMP
    with lock(f"{tree.path.name}-{directory.name}"):
        if not stamp.exists() or stamp.read_text() != wanted:
            directory.mkdir(exist_ok=True)
            stamp.unlink(missing_ok=True)
            configure(tree.path, directory, paths, arch)
            compile_kernel(label, tree.path, directory, arch, variables)
            stamp.write_text(wanted)
    return directory


def fragments(names, arch):
    """The files of a configuration: for all processors, and for this one."""
    for name in names:
        for path in (VM / "configs" / f"{name}.config", VM / "configs" / f"{name}-{arch.name}.config"):
            if path.exists():
                yield path


def make(source, directory, arch):
    """Use ccache if it is installed: the kernels have much in common, and rebuilding after a deleted
    cache is fast."""
    command = ["make", "-C", source, f"O={directory}", *arch.make()]
    if not shutil.which("ccache"):
        return command
    return ["env", "CCACHE_NOHASHDIR=1", *command, f"CC=ccache {arch.compiler}gcc"]


def configure(source, directory, paths, arch):
    config = directory / ".config"
    before = config.read_bytes() if config.exists() else b""
    command = make(source, directory, arch)
    run([*command, "-s", "tinyconfig"])
    run([str(source / "scripts/kconfig/merge_config.sh"), "-m", "-O", directory,
         config, *paths], cwd=source)
    run([*command, "-s", "olddefconfig"])
    check(config, paths)
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


def check(config, paths):
    """Kconfig silently drops an option whose dependency is missing; fail instead."""
    wanted = {}
    for path in paths:
        wanted |= options(path)
    got = options(config)
    wrong = [f"  {name}={value} became {got.get(name, 'n')}"
             for name, value in wanted.items() if got.get(name, "n") != value]
    if wrong:
        raise Failure("these options have no effect in the kernel configuration:\n" + "\n".join(wrong))


def compile_kernel(label, source, directory, arch, variables):
    jobs = os.cpu_count() or 1
    log = directory / "build.log"
    log.unlink(missing_ok=True)
    say(f"building Linux {label} with {jobs} jobs, log: {log}")
    # kbuild takes the last part of the image's path for a target.
    targets = [Path(arch.image).name, "modules"]
    run_logged(f"Linux {label}", [*make(source, directory, arch), *variables, f"-j{jobs}", *targets], log)
