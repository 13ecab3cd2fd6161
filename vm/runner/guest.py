# SPDX-License-Identifier: MIT OR Apache-2.0
"""One run of a guest, from the kernel to the exit status."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys

from . import (coverage, disks, host_processor, initramfs, job, kernel_log, kernels, limit, machine, modules, profile,
               root as roots, streams)
from .messages import say

EMULATOR = 96
DIED = 98
PROBLEM = 99
BROKEN_PIPE = 128 + signal.SIGPIPE


def run(options):
    # Clean up on SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    kernel = kernels.ensure(options.kernel, options.arch)
    root = roots.ensure(options.arch)
    module_directory, own_modules = prepare_modules(options, kernel)
    with disks.run_directory() as directory:
        disks.create(directory / "data.img", options.disk, options.fs)
        for name in disks.raw_names(options.raw_disks):
            disks.create(directory / f"{name}.img", 1)
        if options.share:
            (directory / "share").mkdir()
        terminal = os.isatty(1)
        first = job.boot_modules(options, kernel, own_modules)
        size = shutil.get_terminal_size() if terminal else None
        initramfs.write(directory / "initramfs", root, first,
                        job.describe(options, kernel, root, module_directory, own_modules, first, size))
        log = directory / "kernel.log"
        try:
            with (host_processor.reserve() if machine.emulated(options, kernel)
                  else contextlib.nullcontext()) as processor:
                outcome, problem = boot(options, kernel, root, directory, log, terminal, processor)
            if options.profile and outcome.status == 0:
                lines = log.read_text(errors="replace").splitlines()
                profile.write(options.profile, directory / "counts", kernel, lines)
            if options.coverage:
                coverage.write(options.coverage, kernel, module_directory, log)
            return conclude(options, outcome, log, problem)
        finally:
            if options.kernel_log and log.exists():
                shutil.copyfile(log, options.kernel_log)


def prepare_modules(options, kernel):
    if options.no_module:
        return modules.directory(kernel), []
    directory, built = modules.ensure(kernel, bool(options.coverage))
    if not built:
        say("kernel/module has no Kbuild: running without the module")
    return directory, built


def boot(options, kernel, root, directory, log, terminal, processor):
    """Run the guest, on host processor `processor`, or on any if that is None. Returns its outcome
    and QEMU's error output."""
    ports = {name: streams.pair() for name in
             (["terminal"] if terminal else []) + ["status", "out", "err"]}
    ours = {name: pair[0] for name, pair in ports.items()}
    theirs = {name: pair[1] for name, pair in ports.items()}
    command = machine.command(options, kernel, root, directory, directory / "initramfs", log,
                              theirs, processor)
    if options.verbose:
        say(shlex.join(command))
    errors = directory / "qemu-errors"
    with open(errors, "wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                   pass_fds=[socket.fileno() for socket in theirs.values()],
                                   start_new_session=True)
    for socket in theirs.values():
        socket.close()
    interactive = terminal and os.isatty(0)
    try:
        with streams.Terminal(0) if interactive else contextlib.nullcontext():
            outcome = streams.follow(process, ours, streams.LogFollower(log, options.verbose),
                                     limit.Limit(options.timeout, process.pid), stdin=0 if interactive else None)
    finally:
        process.kill()
        process.wait()
    return outcome, errors.read_text(errors="replace").strip()


def conclude(options, outcome, log, qemu_errors):
    """The exit status; if it is not the command's, also print the reason."""
    if outcome.broken_pipe:
        return BROKEN_PIPE
    lines = log.read_text(errors="replace").replace("\r", "").splitlines() if log.exists() else []
    reports = kernel_log.reports(lines)
    for report in reports[:5]:
        say("problem in the kernel log:")
        print("\n".join(f"  {line}" for line in report), file=sys.stderr)
    if len(reports) > 5:
        say(f"and {len(reports) - 5} more problems in the kernel log")
    if reports and kernel_log.flags_are_impossible(reports[0]):
        say("QEMU, not the kernel, failed: no processor has these flags (vm/README.md)")
        return EMULATOR
    ended = any("guest: end of session" in line for line in lines)
    if outcome.error:
        say(f"the guest could not be prepared: {outcome.error}")
        return DIED
    if outcome.status is None or not ended:
        say(why_died(options, outcome, lines))
        if qemu_errors:
            print(qemu_errors, file=sys.stderr)
        if not reports:
            print("\n".join(f"  {line}" for line in lines[-20:]), file=sys.stderr)
        return DIED
    return PROBLEM if reports else outcome.status


def why_died(options, outcome, lines):
    if outcome.timed_out:
        return f"{outcome.timed_out} (--timeout {options.timeout}); its last messages:"
    if any("Kernel panic" in line for line in lines):
        return "the guest's kernel panicked"
    if outcome.stuck:
        return "the guest did not continue after a kernel Oops"
    if not lines:
        return "the guest did not start"
    return "the guest ended before the command did; its last messages:"
