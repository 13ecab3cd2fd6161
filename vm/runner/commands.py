# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run host programs with a log, a line of progress, and a useful failure."""

import collections
import os
import shutil
import subprocess

from .messages import Failure, Progress


def need(program):
    """The full path of a program that a Debian package provides."""
    # The sbin directories are missing from an ordinary user's PATH.
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    found = shutil.which(program, path=path)
    if not found:
        raise Failure(f"the program '{program}' is missing; vm/README.md lists the Debian packages")
    return found


def environment():
    """The environment without the variables that `make` passes to sub-makes: kernel builds are independent."""
    return {name: value for name, value in os.environ.items()
            if name not in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL")}


def run(arguments, **options):
    """Run without output; on failure show it."""
    arguments = [need(arguments[0]), *map(str, arguments[1:])]
    result = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, errors="replace", env=environment(), **options)
    if result.returncode:
        tail = "\n".join(result.stdout.splitlines()[-15:])
        raise Failure(f"{' '.join(arguments[:3])} … failed ({result.returncode}):\n{tail}")
    return result.stdout


def run_logged(what, arguments, log, **options):
    """Run a long command: its output goes to `log`, and occasional lines of it to the user."""
    progress = Progress(what)
    tail = collections.deque(maxlen=25)
    with open(log, "a") as file:
        # Kill it when we exit: an orphan would disturb the next build in the same directory.
        arguments = [need("setpriv"), "--pdeathsig", "TERM",
                     need(arguments[0]), *map(str, arguments[1:])]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, errors="replace", env=environment(), **options)
        with process:
            for line in process.stdout:
                file.write(line)
                tail.append(line.rstrip())
                progress.update(line.strip()[:60])
    if process.returncode:
        raise Failure(f"{what} failed, log: {log}, last lines:\n" + "\n".join(tail))
    progress.done()
