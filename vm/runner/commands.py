# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run host programs with a log, a line of progress, and a useful failure."""

import collections
import os
import shutil
import subprocess

from .messages import Failure, Progress


def need(program):
    """The full path of a program that a Debian package provides."""
    # Administrators' directories are missing from an ordinary user's PATH.
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
    found = shutil.which(program, path=path)
    if not found:
        raise Failure(f"the program '{program}' is missing; vm/README.md lists the Debian packages")
    return found


def environment():
    """Without what an outer `make` hands to inner ones: kernel builds are not part of it."""
    return {name: value for name, value in os.environ.items()
            if name not in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL")}


def run(arguments, **options):
    """Run quietly; on failure show what it said."""
    arguments = [need(arguments[0]), *map(str, arguments[1:])]
    result = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, errors="replace", env=environment(), **options)
    if result.returncode:
        tail = "\n".join(result.stdout.splitlines()[-15:])
        raise Failure(f"{' '.join(arguments[:3])} … failed ({result.returncode}):\n{tail}")
    return result.stdout


def run_logged(what, arguments, log, **options):
    """Run something long: its output goes to `log`, a line of it to the user now and then."""
    progress = Progress(what)
    tail = collections.deque(maxlen=25)
    with open(log, "a") as file:
        # It ends with us: an orphan would disturb whoever builds in the same place next.
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
        raise Failure(f"{what} failed, log: {log}, its end:\n" + "\n".join(tail))
    progress.done()
