# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command that the wheel installs: the same as the one of Rust, in this process of Python."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import dmabuf_dio

COMMAND = Path(sysconfig.get_path("scripts")) / "dmabuf-dio"


def run(*words: str | bytes, **options: object) -> subprocess.CompletedProcess[bytes]:
    assert COMMAND.exists(), "installed with the package"
    return subprocess.run([COMMAND, *words], capture_output=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


def test_version_is_that_of_the_package() -> None:
    for command in [COMMAND], [sys.executable, "-m", "dmabuf_dio"]:
        version = subprocess.run([*command, "--version"], capture_output=True, check=True)
        assert version.stdout.decode() == f"dmabuf-dio {dmabuf_dio.__version__}\n"


def test_doctor_says_what_the_package_says() -> None:
    done = run("doctor", "--json")
    found, own = json.loads(done.stdout), dmabuf_dio.doctor()
    assert done.stderr == b"" and done.returncode == 0
    # The command lists devices, too.
    assert found["kernel"] == own["kernel"]
    assert [each["backend"] for each in found["backends"]] == [each["backend"] for each in own["backends"]]


def test_failures_have_the_codes_and_hints_of_the_command() -> None:
    missing = run("load", "missing")
    assert missing.returncode == 1
    assert missing.stderr.startswith(b"dmabuf-dio: missing: ")
    wrong = run("load")
    assert wrong.returncode == 2
    assert b"Usage: dmabuf-dio load" in wrong.stderr
    assert b"Traceback" not in missing.stderr + wrong.stderr


def test_output_is_complete_without_a_newline() -> None:
    """Standard output is flushed: completions end without one on some shells."""
    whole = run("completions", "bash").stdout
    assert whole.count(b"\n") > 100 and whole.rstrip().endswith((b"fi", b"dmabuf-dio"))


def test_any_name_of_a_file(folder: Path, content: bytes) -> None:
    path = os.fsencode(folder) + b"/with \xff and \xc3\xa4"
    Path(os.fsdecode(path)).write_bytes(content)
    done = run("load", path, "--", "cat", "{}")
    assert done.stdout == content, done.stderr


def test_commands_inherit_no_ignored_signals(file: Path) -> None:
    """Python ignores SIGPIPE and SIGXFSZ."""
    done = run("load", file.as_posix(), "--kind", "memfd", "--", "grep", "SigIgn", "/proc/self/status")
    ignored = int(done.stdout.split()[1], 16)
    here = Path("/proc/self/status").read_text()
    own = int(here.split("SigIgn:")[1].split()[0], 16)
    pythons = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1
    assert ignored == own & ~pythons, done


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell has what it starts in the background ignore SIGINT, and so has this one, then."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it_without_a_traceback(file: Path, number: signal.Signals) -> None:
    """The command that it runs has begun, so that Python is not starting any more. It waits for that command, which has a path."""
    words = ["load", file.as_posix(), "--", "sh", "-c", "echo runs; exec sleep 60", "{}"]
    with subprocess.Popen([COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"runs\n"
        process.send_signal(number)
        _, stderr = process.communicate()
    assert process.returncode == 128 + number
    assert b"Traceback" not in stderr


@pytest.mark.usefixtures("interruptible")
def test_interrupted_load_is_the_commands_failure(file: Path) -> None:
    """Python's own handler of SIGINT would raise in the end. A lease has the load wait as it opens the file."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    with file.open("rb+") as leased:
        fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        with subprocess.Popen([COMMAND, "load", file, "--quiet"], stderr=subprocess.PIPE) as process:
            while fcntl.fcntl(leased, fcntl.F_GETLEASE) == fcntl.F_WRLCK:
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            leased.close()
            _, stderr = process.communicate()
    signal.signal(signal.SIGIO, before)
    assert process.returncode == 128 + signal.SIGINT
    assert stderr.startswith(b"dmabuf-dio: ") and b"Traceback" not in stderr


def test_ignored_interrupt_stays_ignored(file: Path) -> None:
    """As nohup requires."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = run("load", file.as_posix(), "--kind", "memfd", "--", "grep", "SigIgn", "/proc/self/status")
    finally:
        signal.signal(signal.SIGINT, before)
    assert int(done.stdout.split()[1], 16) & 1 << signal.SIGINT - 1, done
