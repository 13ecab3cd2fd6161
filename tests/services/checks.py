# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs in the guest: the units of packages/systemd under Debian's systemd."""

import hashlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import traceback

SHARE = pathlib.Path("/share")
SOURCE = pathlib.Path("/var/tmp/model.gguf")
PLAIN = "/run/dmabuf-dio-keep/llama.socket"
FACES = "/run/dmabuf-dio-keep/llama.dma-buf.socket"
SERVICE = "dmabuf-dio-keep@llama.service"
# The longest wait for a condition, which ends a hang. The guest is emulated.
LONGEST = 240


def systemctl(*words: str) -> str:
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"systemctl {words}: {done.stderr}\n{log()}"
    return done.stdout.strip()


def log() -> str:
    return subprocess.run(["journalctl", "--no-pager", "-u", "dmabuf-dio-keep*"], capture_output=True, text=True).stdout[-3000:]


def held(path: str = PLAIN) -> tuple[dict, int]:
    """The header's entry of the only file, and its descriptor."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as holder:
        holder.settimeout(LONGEST)
        holder.connect(path)
        text, descriptors, _, _ = socket.recv_fds(holder, 1 << 17, 253)
    assert len(descriptors) == 1, (text, descriptors, log())
    (file,) = json.loads(text)["files"]
    return file, descriptors[0]


def looked_at(expected: bytes) -> int:
    """The number of the memory, whose bytes are compared."""
    file, descriptor = held()
    assert file["place"] == SOURCE.name and file["kind"] == "memfd" and file["length"] == len(expected), file
    assert os.pread(descriptor, len(expected) + 1, 0) == expected, "bytes differ"
    try:
        os.pwrite(descriptor, b"x", 0)
    except OSError:
        pass
    else:
        raise AssertionError("it was written")
    number = os.fstat(descriptor).st_ino
    os.close(descriptor)
    return number


def eventually(what: str, holds) -> None:
    end = time.monotonic() + LONGEST
    while not holds():
        assert time.monotonic() < end, f"{what}\n{log()}"
        time.sleep(0.2)


def main() -> None:
    version = int(subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=True).stdout.split()[1])
    passed = []
    shutil.copyfile(SHARE / "dmabuf-dio", "/usr/bin/dmabuf-dio")
    os.chmod("/usr/bin/dmabuf-dio", 0o755)
    for unit in (SHARE / "systemd").iterdir():
        shutil.copyfile(unit, f"/etc/systemd/system/{unit.name}")
    content = hashlib.shake_128(b"first").digest(5 << 20) + b"end"
    SOURCE.write_bytes(content)
    os.makedirs("/etc/dmabuf-dio/keep")
    pathlib.Path("/etc/dmabuf-dio/keep/llama").write_text(f"SOURCE={SOURCE}\n")
    systemctl("daemon-reload")
    systemctl("start", "dmabuf-dio-keep@llama.socket")
    assert subprocess.run(["systemctl", "is-active", "--quiet", SERVICE]).returncode != 0, "nobody has asked yet"
    first = looked_at(content)
    passed.append("the first connection starts the service, and gets every byte")

    systemctl("restart", SERVICE)
    assert looked_at(content) == first, f"another memory\n{log()}"
    passed.append("the memory survives a restart")

    process = int(systemctl("show", "--property=MainPID", "--value", SERVICE))
    os.kill(process, 9)
    eventually("it is started again", lambda: systemctl("show", "--property=MainPID", "--value", SERVICE) not in (str(process), "0"))
    assert looked_at(content) == first, f"another memory\n{log()}"
    passed.append("the memory survives SIGKILL")

    systemctl("stop", SERVICE)
    second = looked_at(content)
    if version >= 254:
        assert second == first, f"another memory\n{log()}"
        passed.append("the memory survives a stop")
    else:
        assert second != first
        passed.append(f"systemd {version} gives the memory up at a stop, and it is loaded again")

    script = "import sys; sys.path.insert(0, '/share'); import checks; checks.held()"
    another = ["runuser", "-u", "someone", "--", "python3", "-B", "-c", script]
    denied = subprocess.run(another, capture_output=True, text=True)
    assert "PermissionError" in denied.stderr, denied.stderr
    passed.append("another user is denied")
    opened = pathlib.Path("/etc/systemd/system/dmabuf-dio-keep@llama.socket.d/all.conf")
    opened.parent.mkdir()
    opened.write_text("[Socket]\nSocketMode=0666\n")
    systemctl("daemon-reload")
    systemctl("stop", SERVICE)
    systemctl("restart", "dmabuf-dio-keep@llama.socket")
    subprocess.run(another, check=True)
    passed.append("another user is served where the socket is for all")
    second = looked_at(content)

    content = hashlib.shake_128(b"second").digest(1 << 20)
    SOURCE.write_bytes(content)
    systemctl("restart", SERVICE)
    assert looked_at(content) not in (first, second), "the old memory"
    stored = systemctl("show", "--property=NFileDescriptorStore", "--value", SERVICE)
    assert stored == "2", f"{stored} descriptors are stored: the file's and the record's are wanted"
    passed.append("a source that changed is loaded anew, and the old memory is given up")

    if subprocess.run(["modprobe", "udmabuf"]).returncode == 0 and os.path.exists("/dev/udmabuf"):
        systemctl("stop", SERVICE)
        systemctl("start", "dmabuf-dio-keep-dma-buf@llama.socket")
        file, descriptor = held(FACES)
        assert file["kind"] == "dmabuf", file
        assert os.readlink(f"/proc/self/fd/{descriptor}").startswith("/dmabuf:"), "no dma-buf"
        os.close(descriptor)
        looked_at(content)
        denied = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "python3", "-B", "-c",
                                 script.replace("held()", "held(checks.FACES)")], capture_output=True, text=True)
        assert "PermissionError" in denied.stderr, denied.stderr
        passed.append("the dma-buf's own socket gives it, to its group alone")
    (SHARE / "result").write_text(json.dumps({"systemd": version, "passed": passed}))


if __name__ == "__main__":
    try:
        main()
    except Exception:
        traceback.print_exc()
        print(log())
        sys.exit(1)
