# SPDX-License-Identifier: MIT OR Apache-2.0
"""The campaigns' programs with a mutant of the library, the streams, the keeper or the command."""

import os
import pathlib
import shutil
import subprocess

from mutants import REPO, Mutant

PACKAGES = {"dmabuf-dio-torture": "dmabuf-dio-torture", "dmabuf-dio": "dmabuf-dio-cli"}


def run(*command: object, **options: object) -> None:
    subprocess.run([str(word) for word in command], check=True, **options)  # type: ignore[call-overload]


class Programs:
    """Builds them in a copy of the repository. `by_command`: crates whose mutants the command is to show."""

    def __init__(self, work: pathlib.Path, by_command: tuple[str, ...]) -> None:
        self.work, self.copy, self.by_command = work, work / "copy", by_command

    def prepare(self, folder: pathlib.Path) -> None:
        """Copies the repository, and builds the unmodified programs into a folder. Only files that differ are
        written: cargo compiles what is newer."""
        files = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=REPO, check=True,
                               capture_output=True, text=True).stdout.split("\0")
        for name in filter(None, files):
            source, target = REPO / name, self.copy / name
            if source.is_file() and (not target.exists() or target.read_bytes() != source.read_bytes()):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
                os.utime(target)
        folder.mkdir(parents=True, exist_ok=True)
        for program in PACKAGES:
            self.cargo(program, folder)

    def cargo(self, program: str, folder: pathlib.Path) -> None:
        target = self.work / "target"
        run("cargo", "build", "--locked", "--quiet", "-p", PACKAGES[program], "--target-dir", target, cwd=self.copy)
        (folder / program).unlink(missing_ok=True)
        run("strip", "-o", folder / program, target / "debug" / program)

    def build(self, mutant: Mutant, folder: pathlib.Path, plain: pathlib.Path) -> None:
        """The program that shows the mutant; the others are links to those in `plain`."""
        crate = pathlib.PurePath(mutant.path).parts[1] if mutant.path.startswith("crates/") else ""
        changed = "" if not crate else "dmabuf-dio" if crate in self.by_command else "dmabuf-dio-torture"
        if changed:
            path = self.copy / mutant.path
            before = path.read_text()
            path.write_text(mutant.apply(before))
            try:
                self.cargo(changed, folder)
            finally:
                path.write_text(before)
        for program in PACKAGES:
            if program != changed:
                (folder / program).unlink(missing_ok=True)
                (folder / program).hardlink_to(plain / program)
