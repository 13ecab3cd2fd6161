#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""checks.py first|second|here: the checks of packages in a plain Debian, as root: in the boots of a guest, or in its root without a kernel.

/share has the packages, an archive of Debian's, and gets what the first boot leaves to the second, and the transcripts."""

import grp
import hashlib
import json
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import time
import traceback

SHARE = pathlib.Path("/share")
USER, HOME = "someone", pathlib.Path("/home/someone")
FILE = HOME / "model.bin"
SIZE = (32 << 20) + 4711
VERSION = (SHARE / "version").read_text().strip()
RAISED = (SHARE / "raised").read_text().strip()
NEWER = (SHARE / "newer").read_text().strip()
PACKAGES = ["dmabuf-dio", "dmabuf-dio-dkms", "libdmabuf-dio0", "libdmabuf-dio-dev", "soapysdr-module-dmabuf-dio"]
DEVICE = pathlib.Path("/dev/dmabuf_dio")
# Without a kernel of its own nothing is loaded, and DKMS builds for the one whose headers are installed.
KERNEL = sys.argv[1] != "here"
RELEASE = os.uname().release if KERNEL else os.listdir("/lib/modules")[0]
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
               "DEBIAN_FRONTEND": "noninteractive"}
# What changes in a running system, and what DKMS makes for itself
CHANGING = re.compile(r"^/(dev|home/someone/\.(bash|python)_history|proc|run|share|sys|tmp|var/tmp|var/log|var/cache/(apt|debconf|ldconfig)|"
                      r"var/lib/(apt|dpkg|systemd|ucf|initramfs-tools)|var/lib/dkms/(mok\..*|dkms_dbversion)|lost\+found|boot|etc/ld\.so\.cache)(/|$)")
# A transcript has what a reader would type; the name of a folder is a part of it.
Command = dict[str, object]
transcripts: dict[str, list[Command]] = {}
chapter = ""


def shell(line: str, user: str = "", folder: pathlib.Path = SHARE, fails: bool = False) -> str:
    """The output of a line of the shell, which goes to the transcript of this chapter."""
    environment = dict(ENVIRONMENT)
    command = ["sh", "-c", line]
    if user:
        environment["HOME"] = str(HOME)
        command = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", *command]
    print(f"{'$' if user else '#'} {line}", flush=True)
    begun = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    seconds = time.monotonic() - begun
    print(f"{done.stdout}({seconds:.0f} s, status {done.returncode})", flush=True)
    if chapter:
        transcripts.setdefault(chapter, []).append({"prompt": "$" if user else "#", "line": line, "output": done.stdout, "seconds": seconds})
    assert fails or done.returncode == 0, f"{line}: status {done.returncode}\n{done.stdout[-2000:]}"
    return done.stdout


def quietly(line: str, **options: object) -> str:
    """The same, beside the transcript."""
    global chapter
    kept, chapter = chapter, ""
    try:
        return shell(line, **options)  # type: ignore[arg-type]
    finally:
        chapter = kept


def listing() -> list[str]:
    """All files and folders but those that change by themselves."""
    found = []
    for folder, folders, files in os.walk("/"):
        folders[:] = [each for each in folders if not CHANGING.match(os.path.join(folder, each))]
        found += [path for each in (*folders, *files) if not CHANGING.match(path := os.path.join(folder, each))]
    return found


def owned() -> set[str]:
    """The files of installed packages, by both names of folders that Debian has merged."""
    paths = set()
    for each in pathlib.Path("/var/lib/dpkg/info").glob("*.list"):
        for path in each.read_text().splitlines():
            paths |= {path, f"/usr{path}", path.removeprefix("/usr")}
    return paths


def people() -> dict[str, list[str]]:
    return {"users": [str(tuple(each)) for each in pwd.getpwall()], "groups": [str(tuple(each)) for each in grp.getgrall()]}


def loaded() -> str:
    """The version of the module in the kernel, or nothing."""
    file = pathlib.Path("/sys/module/dmabuf_dio/version")
    return file.read_text().strip() if file.exists() else ""


def dkms_versions(release: str) -> list[str]:
    """The versions that DKMS has installed for a kernel."""
    return re.findall(rf"^dmabuf-dio/([^,]+), {re.escape(release)}, x86_64: installed", quietly("dkms status"), re.M)


def module_file(release: str) -> str:
    return quietly(f"modinfo -k {release} -F filename dmabuf_dio").strip()


def right(said: str) -> None:
    assert "in a dma-buf" in said and "backend module" in said and "verified: identical" in said, said


# The first boot


def prepare() -> None:
    content = os.urandom(SIZE)
    FILE.write_bytes(content)
    shutil.chown(FILE, USER, USER)
    for program in ("cargo", "rustc", "dmabuf-dio", "dkms"):
        assert shutil.which(program, path=ENVIRONMENT["PATH"]) is None, f"{program} is there before the installation"
    quietly("apt-get update")
    (SHARE / "before").write_text(json.dumps({"files": listing(), **people()}))


def packages_install() -> None:
    shell("apt install --yes ./*.deb", folder=SHARE / "debian")
    assert dkms_versions(RELEASE) == [VERSION]
    assert f"/lib/modules/{RELEASE}/updates/dkms/dmabuf_dio.ko" in module_file(RELEASE)


def module_loads() -> None:
    shell("modprobe dmabuf_dio")
    quietly("udevadm settle")
    said = shell(f"ls -l {DEVICE}")
    assert re.match(r"crw-rw---- 1 root video ", said), said
    assert loaded() == VERSION


def user_gets_a_dma_buf() -> None:
    right(shell(f"dmabuf-dio load {FILE.name} --verify", user=USER, folder=HOME))
    reader = ("import hashlib, mmap, os; at, size = (int(os.environ['DMABUF_DIO_' + name]) for name in ('OFFSET', 'LEN')); "
              "print(hashlib.sha256(mmap.mmap(int(os.environ['DMABUF_DIO_FD']), at + size, prot=mmap.PROT_READ)[at:]).hexdigest())")
    said = quietly(f'dmabuf-dio load {FILE} --kind dmabuf --quiet -- python3 -c "{reader}"', user=USER)
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() in said, said


def doctor_agrees() -> None:
    said = shell("dmabuf-dio doctor", user=USER, folder=HOME)
    assert re.search(r"^module +yes", said, re.M), said


def others_are_refused() -> None:
    """Who is not in the group gets no dma-buf, and is told why."""
    said = quietly("setpriv --reuid nobody --regid nogroup --clear-groups dmabuf-dio load /etc/passwd --backend module", fails=True)
    assert f"{DEVICE} cannot be opened" in said and "in a dma-buf" not in said and "usermod -aG video" in said, said


def wheel_installs() -> None:
    shutil.copytree(SHARE / "python", HOME / "python")
    shell("python3 -m venv env", user=USER, folder=HOME)
    shell("env/bin/pip install dmabuf-dio --no-index --find-links python", user=USER, folder=HOME)
    program = ("import dmabuf_dio\n"
               f"with dmabuf_dio.load('{FILE.name}') as buffer:\n"
               "    print(buffer.kind, buffer.report.backend)\n"
               f"    assert memoryview(buffer) == open('{FILE.name}', 'rb').read()\n")
    (HOME / "load.py").write_text(program)
    said = shell("env/bin/python load.py", user=USER, folder=HOME)
    assert "dmabuf" in said.lower(), said
    right(shell(f"env/bin/dmabuf-dio load {FILE.name} --verify", user=USER, folder=HOME))
    for folder in (HOME / "env", HOME / "python"):
        shutil.rmtree(folder)
    (HOME / "load.py").unlink()


def kernel_upgrade_rebuilds() -> None:
    shell(f"apt install --yes linux-image-{NEWER} linux-headers-{NEWER}")
    shell("dkms status")
    assert dkms_versions(NEWER) == [VERSION] and dkms_versions(RELEASE) == [VERSION]
    assert "/updates/dkms/" in module_file(NEWER)
    # The next boot is of this kernel.
    for name in ("vmlinuz", "initrd.img"):
        shutil.copyfile(f"/boot/{name}-{NEWER}", SHARE / name)


# The second boot, of the newer kernel


def newer_kernel_loads() -> None:
    assert RELEASE == NEWER, RELEASE
    quietly("modprobe dmabuf_dio && udevadm settle")
    right(quietly(f"dmabuf-dio load {FILE} --verify", user=USER))


def newer_version_while_loads_run() -> None:
    """One load holds its buffer all the time, others come and go; all are right, and the module is replaced when none is left."""
    reader = ("import hashlib, mmap, os, sys; print('ready', flush=True); sys.stdin.readline(); "
              "at, size = (int(os.environ['DMABUF_DIO_' + name]) for name in ('OFFSET', 'LEN')); "
              "print(hashlib.sha256(mmap.mmap(int(os.environ['DMABUF_DIO_FD']), at + size, prot=mmap.PROT_READ)[at:]).hexdigest())")
    as_user = ["setpriv", "--reuid", USER, "--regid", USER, "--init-groups"]
    held = subprocess.Popen([*as_user, "dmabuf-dio", "load", FILE, "--kind", "dmabuf", "--quiet", "--", "python3", "-c", reader],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert held.stdin and held.stdout and held.stdout.readline() == "ready\n"
    running = HOME / "running"
    running.touch()
    # One has been seen before the installation begins. Pauses leave the emulated processor to the compiler.
    loop = f"while [ -e {running} ]; do dmabuf-dio load {FILE} --kind dmabuf --verify --quiet || exit 1; echo right; sleep 10; done"
    loads = subprocess.Popen([*as_user, "sh", "-c", loop], stdout=subprocess.PIPE, text=True)
    assert loads.stdout and loads.stdout.readline() == "right\n"
    try:
        shell("apt install --yes ./*.deb", folder=SHARE / "raised-debian")
        assert loaded() == VERSION, loaded()
        running.unlink()
        rest = loads.stdout.read().split()
        assert loads.wait() == 0 and rest and set(rest) == {"right"}, (loads.returncode, rest)
        print(f"{len(rest) + 1} loads while it was installed")
        digest, _ = held.communicate("\n")
        assert held.returncode == 0 and digest.strip() == hashlib.sha256(FILE.read_bytes()).hexdigest(), (held.returncode, digest)
    finally:
        running.unlink(missing_ok=True)
        held.kill()
        loads.kill()
    quietly("modprobe -r dmabuf_dio && modprobe dmabuf_dio && udevadm settle")
    assert loaded() == RAISED, loaded()
    right(quietly(f"dmabuf-dio load {FILE} --verify", user=USER))


def newer_version() -> None:
    shell("apt install --yes ./*.deb", folder=SHARE / "raised-debian")


def nothing_of_the_old_version_is_left() -> None:
    assert f"dmabuf-dio/{VERSION}," not in quietly("dkms status")
    assert dkms_versions(RELEASE) == [RAISED]
    for place in (f"/usr/src/dmabuf-dio-{VERSION}", f"/var/lib/dkms/dmabuf-dio/{VERSION}"):
        assert not os.path.exists(place), place


def purge_leaves_nothing() -> None:
    shell(f"apt purge --yes {' '.join(PACKAGES)}")
    before = json.loads((SHARE / "before").read_text())
    FILE.unlink()
    mine = owned()
    kept = set(before["files"])
    left = [path for path in listing() if path not in kept and path not in mine and not someone_elses(path)]
    assert not left, left
    for what, found in people().items():
        assert found == before[what], (what, set(found) ^ set(before[what]))
    if KERNEL:
        assert not loaded() and "dmabuf_dio" not in quietly("lsmod") and not DEVICE.exists(), "the module is still loaded"
    assert "dmabuf-dio" not in quietly("dkms status")
    for index in pathlib.Path("/lib/modules").glob("*/modules.*"):
        assert b"dmabuf_dio" not in index.read_bytes(), index
    assert not [each for each in pathlib.Path("/var/lib/dpkg/info").iterdir() if "dmabuf-dio" in each.name]


def someone_elses(path: str) -> bool:
    """What installing the compiler and a kernel makes, beside the files of their packages, and dpkg's backup at midnight."""
    if "dmabuf" in path:
        return False
    if path.startswith("/var/backups/"):
        return True
    link = os.path.islink(path) and os.readlink(path).startswith("/etc/alternatives/")
    return link or path.startswith("/etc/alternatives/") or path in ("/initrd.img.old", "/vmlinuz.old") or "__pycache__" in path or \
        re.search(rf"/{re.escape(NEWER)}/modules\.(dep|alias|symbols|softdep|devname|weakdep|builtin)[.\w]*$", path) is not None


FIRST = [prepare, packages_install, module_loads, user_gets_a_dma_buf, doctor_agrees, others_are_refused, wheel_installs,
         kernel_upgrade_rebuilds]
SECOND = [newer_kernel_loads, newer_version_while_loads_run, nothing_of_the_old_version_is_left, purge_leaves_nothing]
HERE = [prepare, packages_install, newer_version, nothing_of_the_old_version_is_left, purge_leaves_nothing]
CHAPTERS = {"packages_install": "packages", "module_loads": "packages", "user_gets_a_dma_buf": "packages", "doctor_agrees": "packages",
            "wheel_installs": "wheel", "kernel_upgrade_rebuilds": "upgrade", "newer_version": "newer", "newer_version_while_loads_run": "newer",
            "purge_leaves_nothing": "purge"}


def main() -> int:
    global chapter
    passed, failed = 0, 0
    for check in {"first": FIRST, "second": SECOND, "here": HERE}[sys.argv[1]]:
        chapter = CHAPTERS.get(check.__name__, "")
        begun = time.monotonic()
        try:
            check()
        except Exception:
            print(f"FAIL {check.__name__}\n{traceback.format_exc()}", flush=True)
            failed += 1
        else:
            print(f"ok {check.__name__} ({time.monotonic() - begun:.0f} s)", flush=True)
            passed += 1
        result = {"release": RELEASE, "passed": passed, "failed": failed, "transcripts": transcripts}
        (SHARE / f"result-{sys.argv[1]}").write_text(json.dumps(result))
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
