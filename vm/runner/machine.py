# SPDX-License-Identifier: MIT OR Apache-2.0
"""The QEMU command line of a guest."""

from . import device_tree, disks, kvm, profile, tsc
from .commands import need

KERNEL_ARGUMENTS = [
    "loglevel=7", "panic=-1", "printk.devkmsg=on",
    # No attack on the guest is expected.
    "random.trust_cpu=on", "mitigations=off",
    # The same layout in every run makes addresses in logs comparable.
    "nokaslr",
    # On a busy host an emulated guest may stall for seconds.
    "rcupdate.rcu_cpu_stall_timeout=120", "watchdog_thresh=60",
]


def command(options, kernel, root, directory, initramfs, log, channels, host_processor):
    """`root`: the guest's own, or None; `channels` maps the names of output ports to connected
    sockets of ours; `host_processor`: the only one that QEMU runs on, or None."""
    arch = kernel.arch
    machine = arch.iommu_machine if options.iommu else arch.machine
    arguments = [
        # Kill QEMU when we exit for any reason.
        need("setpriv"), "--pdeathsig", "KILL", *confine(host_processor),
        need(arch.emulator), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-machine", machine, "-m", str(options.memory), *processor(options, kernel), *nodes(options),
        "-kernel", kernel.image, "-initrd", initramfs,
        "-append", " ".join(kernel_arguments(options, kernel)),
        "-serial", f"file:{log}",
    ]
    if options.reserved_memory or options.non_coherent:
        tree = directory / "device-tree"
        device_tree.write(tree, arch.emulator, machine,
                          ["-m", options.memory, *processor(options, kernel), *nodes(options)])
        if options.reserved_memory:
            device_tree.reserve_memory(tree)
        if options.non_coherent:
            device_tree.forget_coherence(tree)
        arguments += ["-dtb", tree]
    if options.iommu:
        # Must precede the devices behind it.
        for device in arch.iommu_devices:
            arguments += ["-device", device]
    arguments += host_files()
    if root:
        arguments += shared("root", root, "readonly=on")
    if options.share:
        arguments += shared("share", directory / "share")
    arguments += ports(channels)
    arguments += disk(options, "data", directory)
    for name in disks.raw_names(options.raw_disks):
        arguments += disk(options, name, directory)
    arguments += ["-device", f"edu,dma_mask={options.edu_dma_mask:#x}"]
    # A GPU, whose driver is loaded by the tests that use it
    arguments += ["-device", "virtio-gpu-pci"]
    if options.profile:
        arguments += profile.arguments(directory / "counts")
    return [str(argument) for argument in arguments]


def processor(options, kernel):
    model = ["-cpu", kernel.arch.processor]
    if options.icount:
        return ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", *model, "-smp", "1"]
    if not emulated(options, kernel):
        return ["-accel", "kvm", "-cpu", "host", "-smp", processors(options)]
    # One thread for all processors: with one each, QEMU 7.2 lets a processor run code that
    # another has just patched, and the kernel occasionally dies of a breakpoint while booting.
    return ["-accel", "tcg,thread=single", *model, "-smp", processors(options)]


def processors(options):
    # Those of a socket share a cache, which no two nodes do.
    return str(options.cpus) + (f",sockets={options.cpus}" if options.numa > 1 else "")


def nodes(options):
    """NUMA nodes with equal memory. One has no processor if there are too few."""
    if options.numa == 1:
        return []
    arguments = []
    for node in range(options.numa):
        processors = "".join(f",cpus={number}" for number in range(node, options.cpus, options.numa))
        arguments += ["-object", f"memory-backend-ram,id=node{node},size={options.memory // options.numa}M",
                      "-numa", f"node,nodeid={node},memdev=node{node}{processors}"]
    return arguments


def emulated(options, kernel):
    return options.icount or not kernel.arch.native or not kvm.works(kernel.image)


def confine(host_processor):
    return [] if host_processor is None else [need("taskset"), "--cpu-list", str(host_processor)]


def kernel_arguments(options, kernel):
    arch = kernel.arch
    arguments = [f"console={arch.console}", *KERNEL_ARGUMENTS, *arch.arguments]
    # If instructions are counted, time is exact, too.
    if arch.kbuild == "x86" and emulated(options, kernel) and not options.icount and (khz := tsc.khz()):
        arguments += [f"tsc_early_khz={khz}"]
    if kernel.debug:
        # The allocator's per-CPU arrays keep pointers to allocated objects, and kmemleak treats
        # these as references. With debug checks on, the allocator does not use the arrays.
        arguments += ["slab_debug=F"]
    if options.iommu:
        # Strict: an unmapped address becomes inaccessible at once, so that its use is detected.
        arguments += [*arch.iommu_arguments, "iommu.passthrough=0", "iommu.strict=1"]
    if options.icount:
        # Idle time is skipped, so a wait for the host looks long to the guest.
        arguments += ["sysctl.kernel.hung_task_timeout_secs=0", "nowatchdog",
                      "rcupdate.rcu_cpu_stall_suppress=1"]
    return arguments + options.append


def host_files():
    """The host's root, including everything mounted below it."""
    return ["-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]


def shared(name, path, *options):
    return ["-fsdev", ",".join([f"local,id={name},path={path},security_model=none", *options]),
            "-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"]


# The guest finds them by these numbers.
PORT_NUMBERS = {"status": 1, "out": 2, "err": 3}


def ports(channels):
    arguments = ["-device", "virtio-serial-pci"]
    for name, channel in channels.items():
        arguments += ["-chardev", f"socket,id={name},fd={channel.fileno()}"]
        if name == "terminal":
            arguments += ["-device", f"virtconsole,chardev={name}"]
        else:
            arguments += ["-device",
                          f"virtserialport,chardev={name},name={name},nr={PORT_NUMBERS[name]}"]
    return arguments


def disk(options, name, directory):
    path = directory / f"{name}.img"
    caching = "cache=none,aio=native" if disks.direct(path) else "cache=writeback,aio=threads"
    # The disk is deleted afterwards, so it need not be flushed to the host's.
    arguments = ["-drive", f"if=none,id={name},file={path},format=raw,discard=unmap,{caching},"
                           "cache.no-flush=on"]
    if options.device == "nvme":
        return [*arguments, "-device", f"nvme,drive={name},serial={name}"]
    # Otherwise virtio devices bypass the IOMMU.
    platform = ",disable-legacy=on,iommu_platform=on" if options.iommu else ""
    return [*arguments, "-device", f"virtio-blk-pci,drive={name},serial={name}{platform}"]
