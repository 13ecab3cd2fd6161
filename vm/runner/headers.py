# SPDX-License-Identifier: MIT OR Apache-2.0
"""The headers of all kernels in Debian's suites, to compile modules against. Kernels of one version share a
directory in the cache, whatever their processor and flavour."""

import re
import shutil
from dataclasses import dataclass, field

from . import archive, kbuild, prebuilt
from .commands import run
from .messages import Failure, say
from .paths import cache, lock

SUITES = ("bookworm", "bookworm-backports", "trixie", "trixie-backports", "forky", "sid")
# The prefix of the compiler's name
COMPILERS = {"amd64": "", "arm64": "aarch64-linux-gnu-", "riscv64": "riscv64-linux-gnu-"}


@dataclass
class Headers:
    """The headers of one kernel."""
    arch: str                # as Debian calls it
    release: str             # of the kernel, which ends with its flavour
    packages: archive.Archive
    suites: list[str] = field(default_factory=list)

    @property
    def series(self):
        """Its version without the part that grows within a release of Debian, and its flavour."""
        return re.sub(r"^(\d+\.\d+)\.[^a-z]*?(?:\+deb\d+)?-(?=[a-z])", r"\1-", self.release)


def archive_of(suite, arch):
    foreign = None if arch == archive.host() else arch
    # The machine's own suite comes with its updates.
    if suite == archive.release().suite:
        return archive.debian(foreign)
    return archive.backports(foreign, suite)


def find(suites, arches, every=False):
    """The newest kernel of each series and flavour in each suite, or every kernel."""
    found = {}
    for arch in arches:
        for suite in suites:
            try:
                packages = archive_of(suite, arch)
            except Failure as failure:
                say(f"{suite} for {arch} cannot be reached, and is left out: {failure}")
                continue
            names = packages.names(rf"linux-headers-\d+\.\d+\.\d+\S*-(?:rt-|cloud-)?{arch}(?:-\d+k)?")
            kernels = [Headers(arch, name.removeprefix("linux-headers-"), packages) for name in names]
            if not every:
                # The newest is the last.
                kernels = {kernel.series: kernel for kernel in kernels}.values()
            for kernel in kernels:
                found.setdefault(kernel.release, kernel).suites.append(suite)
    return list(found.values())


def ensure(kernel):
    """The directory to build modules against (KDIR)."""
    name = f"linux-headers-{kernel.release}"
    package = name if kernel.arch == archive.host() else f"{name}:{kernel.arch}"
    depends = kernel.packages.depends(package)
    (common,) = (each for each in depends if re.fullmatch(r"linux-headers-\S+-common(-rt)?", each))
    (tools,) = (each for each in depends if re.fullmatch(r"linux-kbuild-\S+", each))
    version = re.fullmatch(r"linux-headers-(\S+)-common(?:-rt)?", common)[1]
    target = cache(f"headers-{version}")
    headers = target / "usr/src" / name
    with lock(target.name):
        for part in (tools, common, package):
            stamp = target / "unpacked" / part
            if not stamp.exists():
                unpack(kernel, part, target)
                if part == tools:
                    # A release has its own programs, linked to its own libraries.
                    suite = kernel.suites[0].partition("-")[0]
                    kbuild.adapt_programs(target, target, tools.removeprefix("linux-kbuild-"), suite)
                elif part == package:
                    prebuilt.relocate(headers, target)
                    kbuild.adapt(headers, COMPILERS[kernel.arch])
                stamp.parent.mkdir(exist_ok=True)
                stamp.touch()
    return headers


def unpack(kernel, package, target):
    downloads = cache("deb", f"{target.name}-{package}")
    target.mkdir(exist_ok=True)
    for file in kernel.packages.download([package], downloads):
        run(["dpkg-deb", "-x", file, target])
    shutil.rmtree(downloads)
