# SPDX-License-Identifier: MIT OR Apache-2.0
"""Plain Debian systems for guests: the root, and an archive of what packages may want from Debian, as guests have no network."""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "vm"))
sys.dont_write_bytecode = True
from runner import archive  # noqa: E402
from runner.commands import run  # noqa: E402
from runner.messages import Failure, say  # noqa: E402
from runner.paths import cache, lock  # noqa: E402

# No Rust. The compiler is there because Debian's headers of the kernel depend on it.
PACKAGES = ["apt", "dbus", "kmod", "python3", "python3-venv", "systemd-sysv", "udev"]
# What dmabuf-dio's packages depend on beside the C library
NEEDED = ["dkms", "libsoapysdr0.8"]
USER = "someone"
# The guest's first and only job: share/start, which the runner wrote
UNIT = """[Unit]
Description=Checks of packages
After=multi-user.target
[Service]
Type=oneshot
StandardOutput=file:/dev/virtio-ports/out
StandardError=inherit
ExecStart=/bin/sh -c 'modprobe 9pnet_virtio; mkdir -p /share; mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 share /share; exec /share/start'
"""
# An initrd of all modules would take an emulated guest a quarter of an hour, which makes one for the newer kernel.
CONFIGURE = f"""set -eu
echo MODULES=list >"$1/etc/initramfs-tools/conf.d/guest"
printf '%s\\n' virtio_pci virtio_blk ext4 >>"$1/etc/initramfs-tools/modules"
chroot "$1" update-initramfs -u
chroot "$1" useradd --create-home --groups video --shell /bin/sh {USER}
echo 'APT::Install-Recommends "false";' >"$1/etc/apt/apt.conf.d/50recommends"
cp {{unit}} "$1/etc/systemd/system/checks.service"
mkdir -p "$1/etc/systemd/system/default.target.wants"
ln -s ../checks.service "$1/etc/systemd/system/default.target.wants"
echo guest >"$1/etc/hostname"
"""


@dataclasses.dataclass(frozen=True)
class Debian:
    number: int
    suite: str
    kernels: str    # a regular expression for their versions


SYSTEMS = {"debian-12": Debian(12, "bookworm", r"6\.1\.0-\d+"), "debian-13": Debian(13, "trixie", r"6\.12\.\d+\+deb13")}


@dataclasses.dataclass(frozen=True)
class Root:
    """A plain system with the older of two kernels, and an archive with the other."""

    debian: Debian
    place: pathlib.Path
    kernel: str
    newer: str

    @property
    def image(self) -> pathlib.Path:
        return self.place / "root" / "boot" / f"vmlinuz-{self.kernel}"

    @property
    def initrd(self) -> pathlib.Path:
        return self.place / "root" / "boot" / f"initrd.img-{self.kernel}"


def ensure(debian: Debian) -> Root:
    """From the cache, or made: some minutes, and 300 MB to download."""
    place = cache(f"guest-{debian.suite}")
    wanted = " ".join([*PACKAGES, *NEEDED, UNIT, CONFIGURE])
    stamp = place / "wanted"
    with lock(place.name):
        if not stamp.exists() or stamp.read_text() != wanted:
            create(debian, place)
            stamp.write_text(wanted)
    kernel, newer = (place / "kernels").read_text().split()
    return Root(debian, place, kernel, newer)


def create(debian: Debian, place: pathlib.Path) -> None:
    if os.geteuid() != 0:
        raise Failure("a root of its own is made as root: run this with sudo")
    partial = place.with_name(f"{place.name}.partial")
    for old in (place, partial):
        shutil.rmtree(old, ignore_errors=True)
    partial.mkdir(parents=True)
    lines = sources(debian.suite)
    packages = archive.Archive(f"guest-{debian.suite}", lines)
    kernel, newer = two_kernels(packages, debian)
    (partial / "kernels").write_text(f"{kernel} {newer}\n")
    (partial / "unit").write_text(UNIT)
    say(f"installing {debian.suite} with Linux {kernel} into {place} (some minutes)")
    included = [*PACKAGES, f"linux-image-{kernel}", f"linux-headers-{kernel}"]
    run(["mmdebstrap", "--variant=minbase", "--mode=root", '--aptopt=APT::Sandbox::User "root"', "--dpkgopt=force-unsafe-io",
         f"--include={','.join(included)}", f"--customize-hook={CONFIGURE.format(unit=partial / 'unit')}",
         debian.suite, partial / "root", "-"], input="".join(lines))
    (partial / "root/etc/apt/sources.list").write_text("deb [trusted=yes] file:/share/archive ./\n")
    fill(packages, partial, [*NEEDED, f"linux-image-{newer}", f"linux-headers-{newer}"])
    partial.rename(place)


def sources(suite: str) -> list[str]:
    """The machine's own sources of that suite, or the same archive with another suite."""
    configured = [source.line() for source in archive.configured_sources() if source.suite.split("-")[0] == suite]
    return configured or [archive.release().line(suite)]


def two_kernels(packages: archive.Archive, debian: Debian) -> list[str]:
    """The two newest that have headers."""
    found = {name: packages.names(rf"linux-{name}-{debian.kernels}-amd64") for name in ("image", "headers")}
    images = {each.removeprefix("linux-image-") for each in found["image"]}
    both = [release for each in found["headers"] if (release := each.removeprefix("linux-headers-")) in images]
    if len(both) < 2:
        raise Failure(f"the archive of {debian.suite} has no two kernels with headers: {both}")
    return both[-2:]


def fill(packages: archive.Archive, place: pathlib.Path, names: list[str]) -> None:
    """An archive of packages, with all that they depend on and the root does not have."""
    folder = place / "archive"
    (folder / "partial").mkdir(parents=True)
    say(f"downloading {', '.join(names)} and what they depend on")
    run(["apt-get", *packages.options, "-o", f"Dir::State::status={place}/root/var/lib/dpkg/status", "-o", f"Dir::Cache::archives={folder}",
         "--no-install-recommends", "--download-only", "--yes", "install", *names])
    shutil.rmtree(folder / "partial")
    (folder / "lock").unlink(missing_ok=True)
    listed = subprocess.run(["dpkg-scanpackages", "--multiversion", "."], cwd=folder, check=True, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL).stdout
    (folder / "Packages").write_bytes(listed)


def disk(root: Root, path: pathlib.Path, gib: int) -> None:
    """An image of the root, which the guest may change."""
    run(["mke2fs", "-q", "-t", "ext4", "-F", "-L", "guest", "-E", "nodiscard,assume_storage_prezeroed=1", "-d", root.place / "root", path, f"{gib}G"])
