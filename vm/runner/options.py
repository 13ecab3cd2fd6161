# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command line of vm/run."""

import argparse
import os

from . import arch, kernels, limit

EXAMPLES = """
examples:
  vm/run --kernel 6.12 -- uname -r
  vm/run --kernel 7.3 --fs xfs --device virtio -- sh -c 'dd if=/dev/zero of=x bs=1M count=64'
  vm/run --kernel 7.3-debug --iommu -- build/tests-guest/read-whole
  vm/run --arch arm64 --kernel 7.3-16k -- getconf PAGESIZE
  vm/run --kernel 7.3 --numa 2 -- cat /sys/devices/system/node/has_memory
  vm/run --kernel 6.12 --put README.md -- sha256sum README.md

The command sees this machine's files read-only, starts in a fresh file system on
/mnt/data and finds in its environment: DMABUF_DIO_TEST_DIR, DMABUF_DIO_RAW_DISK,
DMABUF_DIO_RAW_DISKS (all of them), DMABUF_DIO_DATA_DISK, DMABUF_DIO_KERNEL,
DMABUF_DIO_FS, DMABUF_DIO_DEVICE, DMABUF_DIO_MODULE_DIR, DMABUF_DIO_REPO,
DMABUF_DIO_ARCH, DMABUF_DIO_BUILD (the folder of programs for that processor),
and with --icount DMABUF_DIO_ICOUNT.

exit status: the command's (128+n for signal n); 2 wrong options; 96 QEMU failed; 97 no guest could be
started; 98 the guest died, hung or reached the time limit; 99 the kernel log shows a problem.
"""


def parse(arguments):
    before, command = split(arguments)
    parser = argparse.ArgumentParser(
        prog="vm/run", usage="vm/run --kernel KERNEL [options] -- COMMAND [ARGUMENT...]",
        description="Run a command in a guest with a chosen kernel, file system and disk.",
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    add = parser.add_argument
    add("--kernel", choices=kernels.NAMES, required=True, help="Linux to run")
    add("--arch", choices=arch.ALL, default="amd64",
        help="the processor (default: amd64)")
    add("--fs", choices=["ext4", "xfs", "f2fs"], default="ext4",
        help="file system on /mnt/data (default: ext4)")
    add("--device", choices=["nvme", "virtio"], default="nvme",
        help="type of the disks (default: nvme)")
    add("--iommu", action="store_true", help="add an IOMMU that translates for every device: Intel's, or an SMMUv3")
    add("--icount", action="store_true",
        help="use one processor, on which CPU time in ns is the number of instructions")
    add("--profile", metavar="FILE",
        help="with --icount: write the instructions per function to FILE")
    add("--coverage", metavar="FOLDER", default=os.environ.get("DMABUF_DIO_COVERAGE"),
        help="write the basic blocks of the module that were reached to a file in FOLDER, for tests/coverage/report "
             "(default: the variable DMABUF_DIO_COVERAGE)")
    add("--memory", type=positive, default=2048, metavar="MIB", help="default: 2048")
    add("--cpus", type=positive, metavar="N", help="default: 2, or 1 where the host has one")
    add("--numa", type=positive, default=1, metavar="N",
        help="NUMA nodes, among which the memory and the processors are divided (default: 1)")
    add("--disk", type=positive, default=12, metavar="GIB",
        help="size of the data disk, a sparse file (default: 12)")
    add("--raw-disks", type=positive, default=1, metavar="N",
        help="disks of 1 GiB without a file system (default: 1)")
    add("--edu-dma-mask", type=number, default=(1 << 64) - 1, metavar="MASK",
        help="address mask of the 'edu' PCI device (default: all 64 bits)")
    add("--reserved-memory", action="store_true",
        help="for arm64: reserve memory in the device tree, 4 MiB without a linear mapping and a CMA region of 64 MiB")
    add("--non-coherent", action="store_true",
        help="for arm64: a device tree that says that DMA is not coherent with caches, so that Linux maintains them")
    add("--append", action="append", default=[], metavar="ARGUMENTS",
        help="further kernel arguments, may be repeated")
    add("--put", action="append", default=[], metavar="FILE",
        help="copy a file from this machine to /mnt/data first, may be repeated")
    add("--share", action="store_true",
        help="provide a temporary folder of this machine that the guest can mount and write, as the "
             "9p device 'share'")
    add("--no-module", action="store_true", help="do not build or load the project's modules")
    add("--timeout", type=positive, default=3600, metavar="SECONDS",
        help="give up after this time of a processor, which a busy machine does not change, or "
             f"{limit.BY_THE_CLOCK} times as long by the clock (default: 3600)")
    add("--kernel-log", metavar="FILE", help="keep the kernel log in FILE")
    add("--verbose", action="store_true", help="show the QEMU command line and the kernel log")
    if not command and not {"-h", "--help"} & set(before):
        parser.error("put the command to run after '--', as in: vm/run --kernel 6.12 -- uname -r")
    options = parser.parse_args(before)
    options.arch = arch.ALL[options.arch]
    if options.kernel not in kernels.names(options.arch):
        parser.error(f"--kernel {options.kernel} is not there for {options.arch.name}: choose from "
                     f"{', '.join(kernels.names(options.arch))}")
    if (options.reserved_memory or options.non_coherent) and not options.arch.device_tree:
        parser.error("--reserved-memory and --non-coherent need a device tree, which "
                     f"{options.arch.name} does not have")
    if options.profile and options.kernel not in kernels.BUILT[options.arch.name]:
        parser.error(f"--profile needs a kernel that is built here, which {options.kernel} is not")
    if options.icount and options.cpus not in (None, 1):
        parser.error("--icount counts on one processor: leave out --cpus")
    if options.profile and not options.icount:
        parser.error("--profile counts instructions: add --icount")
    if options.memory % options.numa:
        parser.error(f"--memory {options.memory} cannot be divided by --numa {options.numa}")
    options.command = command
    options.cpus = 1 if options.icount else options.cpus or min(2, os.cpu_count() or 1)
    return options


def split(arguments):
    if "--" not in arguments:
        return arguments, []
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1:]


def positive(text):
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def number(text):
    return int(text, 0)
