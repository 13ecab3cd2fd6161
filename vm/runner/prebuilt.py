# SPDX-License-Identifier: MIT OR Apache-2.0
"""Debian's prebuilt kernels and their headers, unpacked in the cache without installing them."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from . import archive, kbuild
from .arch import AMD64
from .commands import run
from .messages import Failure, say
from .paths import cache, lock


@dataclass(frozen=True)
class Prebuilt:
    """One series of Debian kernels: its archive and its packages. A version looks like
    6.12.1+deb13, or like 6.1.0-56."""
    archive: Callable[[str | None], archive.Archive]
    version: str              # a regular expression
    packages: tuple[str, ...]  # the kernel and its modules, without the version


PREBUILT = {
    "6.1": Prebuilt(archive.debian, r"6\.1\.0-\d+", ("linux-image",)),
    "6.12": Prebuilt(archive.debian, r"6\.12\.\d+\+deb1[23]", ("linux-image",)),
    "7.2": Prebuilt(archive.backports, r"7\.2\.\d+\+deb13", ("linux-binary", "linux-modules", "linux-base")),
    "7.3": Prebuilt(archive.backports, r"7\.3\.\d+\+deb13", ("linux-binary", "linux-modules", "linux-base")),
}


def names(arch):
    """The names of the kernels of an architecture, with their series and Debian's flavour."""
    return {series + ending: (series, flavour)
            for series in PREBUILT for ending, flavour in arch.flavours.items()}


def ensure(name, arch):
    """The directory with boot/, lib/modules/ and usr/src/ of the newest kernel of that series."""
    target = cache(f"debian-{name}" if arch is AMD64 else f"debian-{name}-{arch.name}")
    with lock(target.name):
        if not target.exists():
            fetch(arch, name, target)
    return target


def fetch(arch, name, target):
    series, flavour = names(arch)[name]
    wanted = PREBUILT[series]
    packages = wanted.archive(None if arch is AMD64 else arch.name)
    # The archive keeps kernels whose headers have been removed.
    found = packages.names(rf"linux-headers-{wanted.version}-{flavour}")
    kernels = set(packages.names(rf"{wanted.packages[0]}-{wanted.version}-{flavour}"))
    versions = [package.removeprefix("linux-headers-").removesuffix(f"-{flavour}") for package in found]
    versions = [one for one in versions if f"{wanted.packages[0]}-{one}-{flavour}" in kernels]
    if not versions:
        raise Failure(f"the Debian archive of this machine has no {name} kernel with headers")
    version = versions[-1]
    release = f"{version}-{flavour}"
    of_arch = [f"{package}-{release}" for package in (*wanted.packages, "linux-headers")]
    if arch is not AMD64:
        of_arch = [f"{package}:{arch.name}" for package in of_arch]
    # The programs that build modules are the host's.
    kbuild_package = programs_package(packages, of_arch[-1])
    tools = [f"linux-headers-{version}-common", kbuild_package]
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    downloads = cache("deb", target.name)
    for package in packages.download([*of_arch, *tools], downloads):
        run(["dpkg-deb", "-x", package, partial])
    shutil.rmtree(downloads)
    arrange(partial, release)
    headers = partial / "usr/src" / f"linux-headers-{release}"
    relocate(headers, target)
    link(partial, release, version)
    kbuild.adapt(headers, arch.compiler)
    kbuild.adapt_programs(partial, target, kbuild_package.removeprefix("linux-kbuild-"))
    run(["depmod", "-b", partial, release])
    partial.rename(target)
    say(f"Linux {release} is ready in {target}")


def programs_package(packages, headers):
    """The package with the programs that build modules. Up to Linux 6.1 its name has no more than the series."""
    (found,) = (each for each in packages.depends(headers) if re.fullmatch(r"linux-kbuild-\S+", each))
    return found


def arrange(partial, release):
    """Move a kernel from its place in newer packages to that in older ones."""
    if not (partial / "lib").exists():
        (partial / "lib").symlink_to("usr/lib")
    image = partial / "lib/modules" / release / "vmlinuz"
    if image.exists():
        (partial / "boot").mkdir(exist_ok=True)
        image.rename(partial / "boot" / f"vmlinuz-{release}")


def relocate(headers, target):
    """Adjust the headers' absolute paths, which assume an installed package."""
    makefile = headers / "Makefile"
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{target}/usr/src/"))


def link(partial, release, version):
    """Let the modules' folder lead to the headers."""
    modules = partial / "lib/modules" / release
    root = "../" * len(modules.resolve().relative_to(partial.resolve()).parts)
    for link, directory in (("build", release), ("source", f"{version}-common")):
        (modules / link).unlink(missing_ok=True)
        (modules / link).symlink_to(f"{root}usr/src/linux-headers-{directory}")
