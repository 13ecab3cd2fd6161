# SPDX-License-Identifier: MIT OR Apache-2.0
"""Instructions per function, counted by a QEMU plugin in windows that the command opens."""

import bisect
import collections
import hashlib
import subprocess

from .commands import need
from .messages import Failure
from .paths import VM, cache, lock

SOURCE = VM / "profile" / "instructions.c"
# The start of the kernel's half of the address space.
KERNEL = 1 << 63
# The windows of `dmabuf-dio-bench cost`
KINDS = {"a": "allocation", "i": "I/O", "l": "allocation and I/O", "c": "close"}
USER = "(user space, including the idle thread)"


def plugin():
    """The plugin, built if necessary; each version of its source has its own."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    library = cache("profile", f"instructions-{digest}.so")
    with lock("profile"):
        if not library.exists():
            subprocess.run([need("gcc"), "-shared", "-fPIC", "-O2", "-fvisibility=hidden",
                            "-o", library, SOURCE], check=True)
    return library


def arguments(counts):
    return ["-plugin", f"{plugin()},output={counts}"]


def write(path, counts, kernel, log_lines):
    """Convert the plugin's counts to tables of functions, one for each kind of window."""
    if not counts.exists():
        raise Failure("--profile: the command opened no window, see vm/README.md")
    symbols = sorted(kernel_symbols(kernel) + module_symbols(log_lines))
    addresses = [address for address, _ in symbols]
    windows = {}
    functions = collections.defaultdict(collections.Counter)
    for line in counts.read_text(encoding="ascii").splitlines():
        kind, address, number = line.split()
        if address == "0":
            windows[kind] = int(number)
        else:
            functions[kind][name_of(int(address, 16), addresses, symbols)] += int(number)
    with open(path, "w", encoding="utf-8") as file:
        for kind, number in windows.items():
            print_table(file, KINDS.get(kind, kind), functions[kind], number)


def name_of(address, addresses, symbols):
    if address < KERNEL:
        return USER
    place = bisect.bisect_right(addresses, address) - 1
    return symbols[place][1] if place >= 0 else hex(address)


def print_table(file, kind, functions, windows):
    user = functions.pop(USER, 0)
    total = sum(functions.values())
    print(f"{kind}: {windows} times; kernel instructions each time: {total // windows}; "
          f"user space, idle time included: {user // windows}", file=file)
    print(f"{'each time':>12} {'share':>6}  function", file=file)
    for name, number in functions.most_common():
        if number >= total / 2000:
            print(f"{number // windows:>12} {100 * number / total:>5.1f}%  {name}", file=file)
    print(file=file)


def kernel_symbols(kernel):
    vmlinux = kernel.build_dir / "vmlinux"
    if not vmlinux.exists():
        raise Failure(f"--profile needs a kernel that is built here, which {kernel.name} is not")
    listing = subprocess.run([need("nm"), vmlinux], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
    words = (line.split() for line in listing.splitlines())
    return [(int(word[0], 16), word[2]) for word in words
            if len(word) == 3 and word[1] in "tTwW"]


def module_symbols(log_lines):
    """Symbols from the kernel log, written by the session because module addresses change in every run."""
    found = []
    for line in log_lines:
        _, mark, rest = line.partition("guest: symbol ")
        words = rest.split()
        if mark and len(words) == 2:
            found.append((int(words[0], 16), words[1]))
    return found
