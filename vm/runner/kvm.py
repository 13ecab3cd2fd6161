# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whether hardware virtualisation works here.

/dev/kvm may exist and still fail to boot an ordinary kernel (nested or partial
virtualisation), so a kernel is booted once per boot of the host and the result is kept.
"""

import os
import subprocess
from pathlib import Path

from .commands import need
from .paths import cache, lock

SECONDS = 15


def works(image):
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    answer = cache("kvm-probe")
    with lock("kvm-probe"):
        if answer.exists() and answer.read_text().startswith(boot):
            return answer.read_text().split()[1] == "yes"
        result = starts(image)
        answer.write_text(f"{boot} {'yes' if result else 'no'}\n")
        return result


def starts(image):
    """Boot without a root file system: a working kernel panics, which ends QEMU."""
    command = [need("qemu-system-x86_64"), "-accel", "kvm", "-cpu", "host", "-m", "512",
               "-machine", "q35", "-nodefaults", "-no-user-config", "-display", "none",
               "-no-reboot", "-serial", "stdio", "-kernel", str(image),
               "-append", "console=ttyS0 panic=-1"]
    with subprocess.Popen(["timeout", str(SECONDS), *command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace") as process:
        for line in process.stdout:
            if "Kernel panic" in line:
                process.terminate()
                return True
            if "KVM internal error" in line:
                break
        process.terminate()
    return False
