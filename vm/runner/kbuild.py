# SPDX-License-Identifier: MIT OR Apache-2.0
"""What makes the headers of a Debian kernel usable on a machine that is older than that kernel."""

import re
import shutil
import subprocess

from . import archive
from .commands import need, run
from .paths import cache

# What the programs of linux-kbuild are linked against, with what that needs itself.
LIBRARIES = ["libc6", "libelf1t64", "libzstd1", "zlib1g"]
# Options of the compiler that a configuration may have and that an older compiler lacks.
COMPILER_OPTIONS = {"CC_HAS_MIN_FUNCTION_ALIGNMENT": "-fmin-function-alignment=16"}


def adapt(partial, target, release, version):
    headers = partial / "usr/src" / f"linux-headers-{release}"
    choose_compiler(headers)
    # Types for BPF: they take a pahole as new as the kernel, and no guest asks a module for them.
    (headers / "vmlinux").unlink(missing_ok=True)
    programs = [path for path in sorted((partial / "usr/lib" / f"linux-kbuild-{version}").rglob("*"))
                if too_new(path)]
    if programs:
        give_libraries(programs, partial, target)


def choose_compiler(headers):
    """Debian's compiler, or the machine's if that is not there."""
    variables = headers / ".kernelvariables"
    text = variables.read_text()
    compiler = re.search(r"\$\(CROSS_COMPILE\)(gcc-\d+)$", text, re.M)[1]
    if shutil.which(compiler):
        return
    variables.write_text(text.replace(compiler, "gcc"))
    for name, flag in COMPILER_OPTIONS.items():
        if subprocess.run([need("gcc"), flag, "-E", "-x", "c", "/dev/null"], check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            for file in ("include/config/auto.conf", "include/generated/autoconf.h"):
                path = headers / file
                path.write_text(re.sub(rf"^(#define )?CONFIG_{name}\b.*\n", "", path.read_text(),
                                       flags=re.M))


def too_new(path):
    """Whether a program does not run with the C library of this machine."""
    if not path.is_file() or path.is_symlink() or path.open("rb").read(4) != b"\x7fELF":
        return False
    result = subprocess.run([need("ldd"), path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, check=False)
    return "not found" in result.stdout


def give_libraries(programs, partial, target):
    """Programs start with the loader and the libraries that they were built for, 4 MB. The other way,
    to build them from the kernel's source, takes 170 MB and the libraries' headers, and gives programs
    that differ from what Debian's users have."""
    downloads = cache("deb", f"{target.name}-libraries")
    libraries = partial / "libraries"
    for package in archive.backports("trixie").download(LIBRARIES, downloads):
        run(["dpkg-deb", "-x", package, libraries])
    shutil.rmtree(downloads)
    root = target / "libraries/usr"
    for program in programs:
        real = program.with_name(program.name + ".elf")
        program.rename(real)
        program.write_text('#!/bin/sh\nexec "'
                           f'{root}/lib64/ld-linux-x86-64.so.2" --library-path '
                           f'"{root}/lib/x86_64-linux-gnu" "$0.elf" "$@"\n')
        program.chmod(0o755)
