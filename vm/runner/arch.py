# SPDX-License-Identifier: MIT OR Apache-2.0
"""The differences between the processors that a guest can have."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Arch:
    name: str                    # as Debian calls it
    flavours: dict[str, str]     # Debian's kernels: the ending of our name for one, and of Debian's
    emulator: str
    machine: str
    processor: str               # the emulated one
    console: str
    arguments: tuple[str, ...]   # of the kernel
    # With an IOMMU that translates for every device: QEMU's machine, its devices, the kernel's arguments
    iommu_machine: str
    iommu_devices: tuple[str, ...]
    iommu_arguments: tuple[str, ...]
    # Does the host run its programs? If not, the guest has a root of its own.
    native: bool
    # Kernels that are built here: kbuild's name of the processor, and the image to boot
    kbuild: str
    image: str
    device_tree: bool = False
    compiler: str = ""           # the prefix of the compiler's name
    packages: tuple[str, ...] = field(default=())  # of the guest's own root

    def make(self):
        """The variables with which kbuild builds for it."""
        return [f"ARCH={self.kbuild}", f"CROSS_COMPILE={self.compiler}"]


AMD64 = Arch(
    name="amd64",
    # The cloud flavour has neither 9p nor f2fs. The other is PREEMPT_RT.
    flavours={"": "amd64", "-rt": "rt-amd64"},
    emulator="qemu-system-x86_64",
    machine="q35",
    # Without ERMS the kernel copies and clears with plain moves. An emulated string instruction
    # counts as one whatever its length, and clearing a page with one can take very long.
    processor="max,erms=off,fsrm=off",
    console="ttyS0",
    # The emulated clock and processor need no checks.
    arguments=("tsc=reliable", "no_timer_check", "i8042.nokbd", "i8042.noaux"),
    iommu_machine="q35",
    iommu_devices=("intel-iommu,intremap=off",),
    iommu_arguments=("intel_iommu=on", "iommu=nopt"),
    native=True,
    kbuild="x86",
    # QEMU boots it directly, so no compressed image is needed.
    image="vmlinux",
)

ARM64 = Arch(
    name="arm64",
    # The ending names the size of a page, if that is not 4 KiB.
    flavours={"": "arm64", "-16k": "arm64-16k", "-rt": "rt-arm64"},
    emulator="qemu-system-aarch64",
    machine="virt,gic-version=3",
    # The architecture's own algorithm of pointer authentication takes half the time of emulation.
    processor="max,pauth-impdef=on",
    console="ttyAMA0",
    arguments=(),
    iommu_machine="virt,gic-version=3,iommu=smmuv3",
    iommu_devices=(),
    iommu_arguments=(),
    native=False,
    kbuild="arm64",
    image="arch/arm64/boot/Image",
    device_tree=True,
    compiler="aarch64-linux-gnu-",
    packages=(
        # Programs for the guest's scripts and tests
        "base-files", "base-passwd", "bash", "busybox-static", "coreutils", "dash", "diffutils",
        "dmsetup", "e2fsprogs", "f2fs-tools", "findutils", "grep", "gzip", "iproute2", "kmod", "libc-bin",
        "mawk", "mount", "procps", "psmisc", "python3", "sed", "tar", "util-linux", "v4l-utils",
        "xfsprogs",
        # Packages to build the tests
        "libc6-dev", "libdrm-dev", "libfuse3-dev", "liburing-dev",
    ),
)

ALL = {arch.name: arch for arch in (AMD64, ARM64)}
