# SPDX-License-Identifier: MIT OR Apache-2.0
"""Debian's prebuilt 6.12 kernel with its headers, unpacked in the cache, nothing installed."""

import shutil

from . import archive
from .commands import run
from .messages import Failure, say
from .paths import cache, lock

# The cloud flavour has neither 9p nor f2fs.
IMAGE = r"linux-image-(6\.12\.\d+\+deb1[23]-amd64)"


def ensure():
    """The directory with boot/, lib/modules/ and usr/src/ of the newest 6.12 found."""
    target = cache("debian-6.12")
    with lock("debian-6.12"):
        if not target.exists():
            fetch(target)
    return target


def fetch(target):
    packages = archive.debian()
    images = packages.names(IMAGE)
    # The archive keeps images whose headers are gone already.
    headers = set(packages.names(r"linux-headers-6\.12\..*"))
    images = [name for name in images if name.replace("-image-", "-headers-") in headers]
    if not images:
        raise Failure("the Debian archive of this machine has no 6.12 kernel image with headers")
    version = images[-1].removeprefix("linux-image-")
    base = version.removesuffix("-amd64")
    names = [f"linux-image-{version}", f"linux-headers-{version}",
             f"linux-headers-{base}-common", f"linux-kbuild-{base}"]
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    downloads = cache("deb", "debian-6.12")
    for package in packages.download(names, downloads):
        run(["dpkg-deb", "-x", package, partial])
    shutil.rmtree(downloads)
    relocate(partial, target, version, base)
    run(["depmod", "-b", partial, version])
    partial.rename(target)
    say(f"Linux {version} is ready in {target}")


def relocate(partial, target, version, base):
    """The headers refer to each other by absolute path, as if installed."""
    headers = partial / "usr/src" / f"linux-headers-{version}"
    makefile = headers / "Makefile"
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"{target}/usr/src/"))
    modules = partial / "lib/modules" / version
    for link, directory in (("build", version), ("source", f"{base}-common")):
        (modules / link).unlink(missing_ok=True)
        (modules / link).symlink_to(f"../../../usr/src/linux-headers-{directory}")
