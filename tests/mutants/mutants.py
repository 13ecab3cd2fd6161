# SPDX-License-Identifier: MIT OR Apache-2.0
"""Mutants: changes of the sources that tests, or campaigns, have to find."""

import dataclasses
import json
import pathlib
import re
import shutil
import subprocess

REPO = pathlib.Path(__file__).resolve().parents[2]
LISTS = REPO / "tests" / "mutants"
RUN_ALL = "tests/guest/run-all"


@dataclasses.dataclass
class Mutant:
    """A change of one file in one or more places: each old text is unique in the file."""

    name: str
    kernel: str
    options: tuple[str, ...]
    command: tuple[str, ...]
    path: str = ""
    hunks: list[list[str]] = dataclasses.field(default_factory=list)

    def machine(self) -> tuple[str, tuple[str, ...]]:
        return self.kernel, self.options

    def apply(self, text: str) -> str:
        for old, new in self.hunks:
            if text.count(old) != 1:
                raise SystemExit(f"{self.name}: {text.count(old)} matches in {self.path} for\n{old}")
            text = text.replace(old, new)
        return text


def parse(path: pathlib.Path, kernel: str) -> list[Mutant]:
    """Reads a list; its first comment describes the format."""
    mutants: list[Mutant] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := re.match(r"([a-z0-9-]+): (.+)$", line):
            words = match[2].split()
            options = dict(word[1:].partition("=")[::2] for word in words if word[0] == "@")
            tests = tuple(word for word in words if word[0] != "@")
            command = (tests[0][1:], *tests[1:]) if tests[0][0] == "+" else (RUN_ALL, *tests)
            where = options.pop("kernel", kernel)
            extra = tuple(word for name, value in options.items()
                          for word in (f"--{name}", value) if word)
            mutants.append(Mutant(match[1], where, extra, command))
        elif mutants and line.startswith(("kernel/", "crates/")):
            mutants[-1].path = line
        elif mutants and line[:1] == "-":
            if not mutants[-1].hunks or mutants[-1].hunks[-1][1]:
                mutants[-1].hunks.append(["", ""])
            mutants[-1].hunks[-1][0] += line[1:] + "\n"
        elif mutants and line[:1] == "+":
            mutants[-1].hunks[-1][1] += line[1:] + "\n"
        elif line and not line.startswith("#"):
            raise SystemExit(f"{path}:{number}: {line}")
    return mutants


def call(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)


class Tree:
    """A copy of the repository, in which the module is changed; its modules are in work/ko."""

    def __init__(self, work: pathlib.Path) -> None:
        self.work, self.copy = work, work / "copy"

    def prepare(self) -> None:
        for name in ("kernel", "vm", "tests", "tools"):
            shutil.copytree(REPO / name, self.copy / name, symlinks=True, dirs_exist_ok=True)
        (self.copy / "build").mkdir(exist_ok=True)
        # An interrupted run may have left a mutated source.
        for record in self.copy.glob("build/modules-*/state.json"):
            record.unlink()
        for name in ("tests-guest", "edu-check"):
            link = self.copy / "build" / name
            if not link.is_symlink():
                link.symlink_to(REPO / "build" / name)

    def modules(self, kernel: str) -> None:
        """Builds the unmodified modules for a kernel."""
        if (made := call(self.copy / "vm" / "modules", kernel)).returncode:
            raise SystemExit(made.stdout)

    def build(self, mutant: Mutant) -> str:
        """Builds the mutated module in its own folder, unless it exists. Returns the compiler's output on
        failure."""
        modules = self.copy / "build" / f"modules-{mutant.kernel}"
        place = modules / "src" / mutant.path.removeprefix("kernel/")
        folder = self.work / "ko" / mutant.name
        if (folder / "dmabuf_dio.ko").is_file() and not (folder / "dmabuf_dio.ko").is_symlink():
            return ""
        before = place.read_text()
        place.write_text(mutant.apply(before))
        try:
            headers = json.loads((modules / "state.json").read_text())["kernel"][0]
            made = call("make", "-s", "-C", headers, f"M={modules / 'src' / 'module'}", "modules")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            if made.returncode:
                return made.stdout
            for module in modules.glob("*.ko"):
                (folder / module.name).symlink_to(module)
            (folder / "dmabuf_dio.ko").unlink()
            shutil.copy2(modules / "src" / "module" / "dmabuf_dio.ko", folder)
            return ""
        finally:
            place.write_text(before)
