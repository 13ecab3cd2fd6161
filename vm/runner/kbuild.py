# SPDX-License-Identifier: MIT OR Apache-2.0
"""Make the headers of a Debian kernel usable on a machine older than that kernel."""

import re
import shutil
import subprocess

from . import archive
from .commands import need, run
from .paths import cache

# The libraries that linux-kbuild's programs need, with their dependencies
LIBRARIES = ["libc6", "libelf1t64", "libzstd1", "zlib1g"]
# Features of compiler and assembler that a configuration may assume, each with an option and a program that
# older ones refuse
COMPILER_FEATURES = {
    "CC_HAS_MIN_FUNCTION_ALIGNMENT": ("-fmin-function-alignment=16", ""),
    "CC_HAS_COUNTED_BY": ("-Werror", "struct { int n; char a[] __attribute__((counted_by(n))); } *s;"),
    "CC_HAS_COUNTED_BY_PTR": ("-Werror", "struct { int n; char *a __attribute__((counted_by(n))); } s;"),
    "CC_HAS_MULTIDIMENSIONAL_NONSTRING":
        ("-Werror", 'char a[1][4] __attribute__((nonstring)) = { "four" };'),
    "TOOLCHAIN_HAS_ZABHA": ("-march=rv64gc_zabha", ""),
    "TOOLCHAIN_HAS_ZACAS": ("-march=rv64gc_zacas", ""),
}


def adapt(headers, prefix):
    """The headers of one kernel."""
    choose_compiler(headers, prefix)
    # BTF needs a pahole as new as the kernel, and no guest uses it for modules.
    (headers / "vmlinux").unlink(missing_ok=True)


def adapt_programs(partial, target, version, suite="trixie"):
    """The programs that build modules; the libraries come from the suite."""
    programs = [path for path in sorted((partial / "usr/lib" / f"linux-kbuild-{version}").rglob("*"))
                if too_new(path)]
    if programs:
        give_libraries(programs, partial, target, suite)


def choose_compiler(headers, prefix):
    """Use Debian's compiler version, or the default gcc if that is not installed."""
    variables = headers / ".kernelvariables"
    text = variables.read_text()
    compiler = re.search(r"\$\(CROSS_COMPILE\)(gcc-\d+)$", text, re.M)[1]
    if shutil.which(prefix + compiler):
        return
    variables.write_text(text.replace(compiler, "gcc"))
    for name, (option, program) in COMPILER_FEATURES.items():
        if subprocess.run([need(prefix + "gcc"), option, "-c", "-o", "/dev/null", "-x", "c", "-"],
                          input=program, text=True, check=False, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode:
            for file in ("include/config/auto.conf", "include/generated/autoconf.h"):
                path = headers / file
                path.write_text(re.sub(rf"^(#define )?CONFIG_{name}\b.*\n", "", path.read_text(),
                                       flags=re.M))


def too_new(path):
    """Whether a program needs newer libraries than this machine has."""
    if not path.is_file() or path.is_symlink() or path.open("rb").read(4) != b"\x7fELF":
        return False
    result = subprocess.run([need("ldd"), path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, check=False)
    return "not found" in result.stdout


def give_libraries(programs, partial, target, suite):
    """Run the programs with the loader and libraries they were built for, 4 MB. Building them from the
    kernel source instead would take 170 MB and the libraries' headers, and the programs would differ
    from Debian's."""
    downloads = cache("deb", f"{target.name}-libraries")
    libraries = partial / "libraries"
    for package in archive.backports(suite=suite).download(LIBRARIES, downloads):
        run(["dpkg-deb", "-x", package, libraries])
    shutil.rmtree(downloads)
    root = target / "libraries/usr"
    for program in programs:
        real = program.with_name(program.name + ".elf")
        program.rename(real)
        program.write_text(archive.wrapper(root, '"$0.elf"'))
        program.chmod(0o755)
