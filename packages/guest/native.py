# SPDX-License-Identifier: MIT OR Apache-2.0
"""Installations on this machine, in a layer above a plain Debian: they take minutes where a guest takes an hour, and their times mean
something. Nothing loads the module."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import clean  # noqa: E402
import root as roots  # noqa: E402

# What Debian adds, the packages without the module, the module, a Python environment, the wheel. DKMS builds for the kernel whose headers the
# root has; nothing loads the module.
COMMAND = """
export DEBIAN_FRONTEND=noninteractive
apt-get update >/dev/null
cd /packages
timed() {
	what=$1
	shift
	begin=$(date +%s.%N)
	"$@"
	echo "$what $begin $(date +%s.%N)" >>/out/times
}
rm -f /out/times
timed needed apt-get install --yes dkms libsoapysdr0.8
timed packages apt-get install --yes $(ls ./*.deb | grep -v dkms)
timed module apt-get install --yes ./dmabuf-dio-dkms_*.deb
dkms status | grep "^dmabuf-dio/$VERSION, $KERNEL, .*: installed"
timed venv python3 -m venv /root/env
timed wheel /root/env/bin/pip install dmabuf-dio --no-index --find-links /wheels
test "$(/root/env/bin/dmabuf-dio --version)" = "dmabuf-dio $VERSION"
test "$(dmabuf-dio --version)" = "dmabuf-dio $VERSION"
"""


def measure(system: roots.Root) -> dict[str, float]:
    """The seconds of each."""
    out = clean.OUTPUT / "times"
    out.mkdir(parents=True, exist_ok=True)
    clean.build(f"installing-{system.debian.suite}", COMMAND,
                {"/packages": clean.DEBIAN, "/wheels": clean.PYTHON, "/share/archive": system.place / "archive", "/out": out},
                base=system.place / "root", VERSION=clean.version(), KERNEL=system.kernel)
    lines = (out / "times").read_text().splitlines()
    return {what: float(end) - float(begin) for what, begin, end in map(str.split, lines)}


def check(system: roots.Root, share: pathlib.Path) -> None:
    """The checks that need no kernel. `share`: what a guest would see as /share."""
    clean.build(f"checks-{system.debian.suite}", "python3 /share/checks.py here", {"/share": share}, base=system.place / "root")
