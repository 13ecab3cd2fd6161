# SPDX-License-Identifier: MIT OR Apache-2.0
"""The modules of a kernel that a guest loads first: in order, and decompressed."""

import lzma
import os
import re

from .commands import run
from .messages import Failure


def canonical(path):
    name = path.rsplit("/", 1)[-1].split(".ko")[0]
    return name.replace("-", "_")


class Tree:
    """The modules that come with one kernel."""

    def __init__(self, kernel):
        self.root = kernel.root / "lib/modules" / kernel.release
        self.needs = {}
        self.paths = {}
        for line in (self.root / "modules.dep").read_text().splitlines():
            path, _, needs = line.partition(":")
            self.paths[canonical(path)] = self.root / path
            self.needs[canonical(path)] = [canonical(need) for need in needs.split()]
        self.aliases = {}
        for word, alias, module in self.lines("modules.alias", 3):
            if word == "alias" and "*" not in alias:
                self.aliases.setdefault(canonical(alias), []).append(canonical(module))
        self.wishes = {}
        for line in (self.root / "modules.softdep").read_text().splitlines():
            if match := re.fullmatch(r"softdep (\S+) pre: ([^:]*?)( post:.*)?", line):
                self.wishes[canonical(match[1])] = match[2].split()
        self.built_in = {canonical(line) for line in
                         (self.root / "modules.builtin").read_text().split()}

    def lines(self, file, words):
        """The lines of a file with the given number of words."""
        for line in (self.root / file).read_text().splitlines():
            if len(parts := line.split()) == words:
                yield parts

    def in_order(self, names):
        """The modules and their dependencies, each after its own dependencies: pairs of a
        file and whether it is optional."""
        ordered = {}

        def add(name, optional):
            if name in self.built_in or name in ordered:
                return
            if name not in self.paths:
                raise Failure(f"the kernel has no module {name}")
            for wish in self.wishes.get(name, []):
                for variant in self.variants(canonical(wish)):
                    add(variant, True)
            for need in self.needs[name]:
                add(need, optional)
            ordered[name] = optional

        for name in names:
            add(canonical(name), False)
        return [(self.unpacked(name), optional) for name, optional in ordered.items()]

    def variants(self, name):
        """The modules that a name or alias stands for."""
        return [name] if name in self.paths else self.aliases.get(name, [])

    def unpacked(self, name):
        """The file of a module, decompressed for the kernel's loader."""
        path = self.paths[name]
        if path.suffix != ".xz":
            return path
        target = self.root / "unpacked" / path.stem
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            # Two runners may do this at once; both produce the same file.
            partial = target.with_name(f"{target.name}.{os.getpid()}")
            partial.write_bytes(lzma.decompress(path.read_bytes()))
            partial.rename(target)
        return target


def needed_by(module):
    """Names of the modules that a module file depends on, hard or soft."""
    depends = run(["modinfo", "-F", "depends", module]).strip().split(",")
    wants = run(["modinfo", "-F", "softdep", module]).removeprefix("pre:").split()
    return [name for name in [*depends, *wants] if name]
