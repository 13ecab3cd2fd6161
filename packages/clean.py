# SPDX-License-Identifier: MIT OR Apache-2.0
"""A clean place to build in: what is committed, a Debian root of its own, and no network."""

import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "vm"))
sys.dont_write_bytecode = True
from runner import archive  # noqa: E402
from runner.commands import run, run_logged  # noqa: E402
from runner.messages import Failure, say  # noqa: E402
from runner.paths import cache, lock  # noqa: E402

OUTPUT = REPO / "build" / "packages"
PYTHON, DEBIAN, RPM, CRATES = (OUTPUT / name for name in ("python", "debian", "rpm", "crates"))
# Debian 12: what is built there runs on Debian 13, too, whose glibc is newer.
SUITE = "bookworm"
# One root for all packages. Debian 12's own Rust is too old; the one for its web browsers is not.
PACKAGES = ["build-essential", "cargo-web", "debhelper", "dh-dkms", "dkms", "fakeroot", "libsoapysdr-dev", "lintian", "pkg-config",
            "procps", "python3", "rpm", "rpmlint"]


def epoch() -> str:
    """The time of the last commit, which the files in packages have."""
    return run(["git", "log", "-1", "--format=%ct"], cwd=REPO).strip()


def version() -> str:
    for line in (REPO / "Cargo.toml").read_text().splitlines():
        if line.startswith("version = "):
            return line.split('"')[1]
    raise Failure("Cargo.toml names no version")


def sources(target: pathlib.Path) -> None:
    """What the last commit has."""
    if changed := run(["git", "status", "--porcelain"], cwd=REPO).splitlines():
        say(f"{len(changed)} files that are not committed are left out")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with subprocess.Popen(["git", "archive", "HEAD"], cwd=REPO, stdout=subprocess.PIPE) as archived:
        run(["tar", "-x", "-C", target], stdin=archived.stdout)
    if archived.returncode:
        raise Failure("git archive failed")


def crates() -> pathlib.Path:
    """The crates of Cargo.lock as folders, so that the build needs no network."""
    lockfile = run(["git", "show", "HEAD:Cargo.lock"], cwd=REPO)
    target = cache(f"crates-{hashlib.sha256(lockfile.encode()).hexdigest()[:16]}")
    with lock("crates"):
        if not target.exists():
            say(f"copying the crates of Cargo.lock to {target}")
            partial = target.with_name("crates-partial")
            for old in target.parent.glob("crates-*"):
                shutil.rmtree(old)
            run(["cargo", "vendor", "--locked", "--quiet", partial], cwd=REPO)
            partial.rename(target)
    return target


def toolchain(targets: list[str] | None = None) -> pathlib.Path:
    """This machine's Rust, with the standard libraries of these targets."""
    found = pathlib.Path(run(["rustc", "--print", "sysroot"], cwd=REPO).strip())
    for target in targets or []:
        if not (found / "lib" / "rustlib" / target / "lib").exists():
            run(["rustup", "target", "add", target])
    return found


def root() -> pathlib.Path:
    """Debian with the compilers. It is never changed: builds write to a layer above it."""
    if os.geteuid() != 0:
        raise Failure("a clean root is made and entered as root: run this with sudo")
    lines = [source.line(suite) for source in archive.configured_sources() for suite in [source.suite]
             if suite.split("-")[0] == SUITE]
    if not lines:
        raise Failure(f"apt has no archive of Debian {SUITE} configured")
    wanted = " ".join([SUITE, *PACKAGES])
    target = cache("packages-root")
    stamp = target / "etc" / "dmabuf-dio-packages"
    with lock(target.name):
        if not stamp.exists() or stamp.read_text() != wanted:
            partial = target.with_name(f"{target.name}.partial")
            for old in (target, partial):
                shutil.rmtree(old, ignore_errors=True)
            say(f"installing Debian {SUITE} with compilers into {target} (some minutes)")
            run(["mmdebstrap", "--variant=minbase", "--mode=root", '--aptopt=APT::Sandbox::User "root"', "--dpkgopt=force-unsafe-io",
                 f"--include={','.join(PACKAGES)}", SUITE, partial, "-"], input="".join(lines))
            (partial / "etc" / "dmabuf-dio-packages").write_text(wanted)
            partial.rename(target)
    return target


# What the shell does in namespaces of its own, before the command: nothing stays mounted.
ENTER = """set -eu
umask 022
mount --make-rprivate /
mount -t overlay overlay -o lowerdir={root},upperdir={work}/upper,workdir={work}/layer {work}/root
mount -t proc proc {work}/root/proc
mount --rbind /dev {work}/root/dev
{binds}
ip link set lo up 2>/dev/null || true
exec chroot {work}/root env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TZ=UTC {settings} sh -euc {command}
"""


def build(what: str, command: str, binds: dict[str, pathlib.Path], base: pathlib.Path | None = None, **settings: str) -> None:
    """Runs a command of the shell in the clean root, or in another, without a network. It sees the folders in `binds` under these paths, and
    can write to /out, /share and /source only."""
    base = base or root()
    work = OUTPUT / "work" / what
    shutil.rmtree(work, ignore_errors=True)
    for folder in ("upper", "layer", "root"):
        (work / folder).mkdir(parents=True)
    lines = []
    for at, folder in binds.items():
        (work / "upper" / at.strip("/")).mkdir(parents=True, exist_ok=True)
        place = f"{work}/root{at}"
        lines.append(f"mount --bind {shlex.quote(str(folder))} {place}")
        if at not in ("/out", "/share", "/source"):
            lines.append(f"mount -o remount,bind,ro {place}")
    home = work / "upper" / "root" / ".cargo"
    home.mkdir(parents=True)
    (home / "config.toml").write_text(
        '[source.crates-io]\nreplace-with = "copied"\n[source.copied]\ndirectory = "/crates"\n[net]\noffline = true\n')
    values = {"SOURCE_DATE_EPOCH": epoch(), "CARGO_INCREMENTAL": "0", **settings}
    script = ENTER.format(root=base, work=work, binds="\n".join(lines), command=shlex.quote(command),
                          settings=" ".join(f"{name}={shlex.quote(value)}" for name, value in values.items()))
    log = OUTPUT / f"{what}.log"
    log.unlink(missing_ok=True)
    try:
        run_logged(f"building {what}", ["nice", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc", "sh", "-c", script], log)
    finally:
        shutil.rmtree(work, ignore_errors=True)
