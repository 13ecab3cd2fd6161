# SPDX-License-Identifier: MIT OR Apache-2.0
"""The guest's job: the command, its environment, modules to load, host directories to show."""

import os
import re
import shlex
from pathlib import Path

from . import disks, kernel_modules, root as roots
from .commands import need
from .messages import Failure
from .paths import REPO, cache

# Empty and writable in the guest; the host's content is hidden.
SCRATCH = ["/tmp", "/run", "/var/tmp", "/mnt", "/dev"]
# Variables of the host's session that the command should not inherit.
DROPPED = {"PWD", "OLDPWD", "SHLVL", "_", "TMPDIR", "TEMP", "TMP", "XDG_RUNTIME_DIR",
           "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"}


def boot_modules(options, kernel, own_modules):
    """The kernel's own modules to load before the command starts: pairs of a file and whether it is
    optional."""
    if kernel.root is None:
        return []
    disk = "nvme" if options.device == "nvme" else "virtio_blk"
    names = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", options.fs, disk]
    for module in own_modules:
        names += kernel_modules.needed_by(module)
    own = {module.stem.replace("-", "_") for module in own_modules}
    names = [name for name in names if name.replace("-", "_") not in own]
    return kernel_modules.Tree(kernel).in_order(names)


def describe(options, kernel, root, module_directory, own_modules, loaded_first, terminal_size):
    command = resolve(options.command)
    shown = shown_beside(root, kernel, command) if root else visible(kernel, command)
    return {
        "settings": settings(options, kernel, root, loaded_first, terminal_size),
        "command": command_script(options, kernel, root, module_directory, command),
        "visible": lines(shown),
        "put": lines(put_lines(options.put)),
        "modules": lines(own_modules),
    }


def lines(paths):
    return "".join(f"{path}\n" for path in paths)


def settings(options, kernel, root, loaded_first, terminal_size):
    values = {
        "boot_modules": " ".join(("-" if optional else "") + module.name
                                 for module, optional in loaded_first),
        "scratch_directories": " ".join(path for path in SCRATCH if path != "/dev"),
        "file_system": options.fs,
        # Should QEMU's NVMe device lose a completion interrupt or a doorbell (host_processor.py
        # prevents the only known cause), Linux looks for completions after the I/O timeout, and
        # resets the device after a second one. Under --icount idle time is skipped, so by the
        # guest's clock a disk may take hours.
        "raw_disks": " ".join(disks.raw_names(options.raw_disks)),
        "disk_timeout_ms": "100000000" if options.icount else "10000",
        "terminal": "rows {1} cols {0}".format(*terminal_size) if terminal_size else "",
        "modprobe": "/usr/sbin/modprobe" if root else need("modprobe"),
        "root_device": "root" if root else "host",
        "profile": "yes" if options.profile else "",
        "coverage": "yes" if options.coverage else "",
        "kernel_root": str(kernel.root or "/"),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())


def resolve(command):
    """Make a relative path absolute: the command runs in a different directory."""
    first = command[0]
    if "/" in first and not first.startswith("/") and Path(first).exists():
        return [str(Path(first).absolute()), *command[1:]]
    return command


def command_script(options, kernel, root, module_directory, command):
    environment = {name: value for name, value in os.environ.items()
                   if name not in DROPPED and re.fullmatch(r"[A-Za-z_]\w*", name)}
    path = environment.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    build = REPO / "build"
    built = f"{REPO}/target/release:{REPO}/target/debug"
    if root:
        # No program of the host
        path = "/usr/bin"
        build /= kernel.arch.name
        built = build / "bin"
    environment |= {
        "PATH": f"/run/guest/bin:{built}:{path}:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": "/tmp",
        "DMABUF_DIO_TEST_DIR": "/mnt/data",
        "DMABUF_DIO_KERNEL": kernel.series,
        "DMABUF_DIO_FS": options.fs,
        "DMABUF_DIO_DEVICE": options.device,
        "DMABUF_DIO_MODULE_DIR": str(module_directory),
        "DMABUF_DIO_REPO": str(REPO),
        "DMABUF_DIO_ARCH": kernel.arch.name,
        "DMABUF_DIO_BUILD": str(build),
        **({"DMABUF_DIO_ICOUNT": "1"} if options.icount else {}),
    }
    exports = "".join(f"export {name}={shlex.quote(value)}\n"
                      for name, value in environment.items())
    words = " ".join(shlex.quote(word) for word in command)
    return f"{exports}. /run/guest/disks\nunset OLDPWD\nexec {words}\n"


def shown_beside(root, kernel, command):
    """Directories of the host that the command may need, beside the guest's own root."""
    paths = {str(REPO), str(cache("run").parent), os.getcwd(), str(kernel.build_dir)}
    if command[0].startswith("/") and not (root / command[0][1:]).exists():
        paths.add(os.path.dirname(command[0]))
    # It omits files with a shown parent, and directories that would hide the guest's own.
    wanted = []
    for path in sorted(map(os.path.realpath, paths)):
        inside = any(path.startswith(f"{other}/") for other in wanted)
        if not inside and path != "/" and not os.path.exists(f"{root}{path}/bin"):
            wanted.append(path)
    roots.show(root, wanted)
    return wanted


def visible(kernel, command):
    """Directories that the command may need but the guest's scratch directories would hide."""
    candidates = [str(REPO), str(cache("run").parent), os.getcwd(), str(kernel.build_dir)]
    candidates += os.environ.get("PATH", "").split(":")
    if command[0].startswith("/"):
        candidates.append(os.path.dirname(command[0]))
    wanted = []
    for path in sorted({os.path.realpath(path) for path in candidates if path.startswith("/")}):
        hidden = any(path.startswith(f"{scratch}/") for scratch in SCRATCH)
        inside = any(path.startswith(f"{other}/") for other in wanted)
        if hidden and not inside and os.path.isdir(path):
            wanted.append(path)
    return wanted


def put_lines(paths):
    """Name and real path of each file to copy. Checked here, because an error in the guest comes late."""
    found = []
    for path in paths:
        if not os.path.isfile(path):
            raise Failure(f"--put {path}: there is no such file")
        found.append(f"{os.path.basename(path)}\t{os.path.realpath(path)}")
    return found


