# SPDX-License-Identifier: MIT OR Apache-2.0
"""Download Debian packages without installing them, from the mirror this machine is configured with.

A private apt directory leaves the machine's own package lists and state unchanged.
"""

import re
import subprocess

from .commands import run
from .messages import Failure, say
from .paths import cache, lock

DEBIAN_RELEASES = {"bookworm", "trixie", "stable", "oldstable"}


class Source:
    """One configured Debian archive: its URI and its signing key."""

    def __init__(self, uri, suite, signed_by):
        self.uri = uri
        self.suite = suite
        self.signed_by = signed_by

    def line(self, suite=None):
        options = f"[signed-by={self.signed_by}] " if self.signed_by else ""
        return f"deb {options}{self.uri} {suite or self.suite} main\n"


def signed_by(entry):
    """The keyring of a sources entry, named as apt names the entry: FILE:NUMBER."""
    path, _, number = entry.rpartition(":")
    try:
        text = open(path).read()
    except OSError:
        return None
    if path.endswith(".sources"):
        stanzas = [part for part in re.split(r"\n\s*\n", text)
                   if re.search(r"^URIs:", part, re.M | re.I)]
        text = stanzas[int(number) - 1] if int(number) <= len(stanzas) else ""
        found = re.search(r"^Signed-By:[ \t]*(/\S+)", text, re.M | re.I)
    else:
        lines = text.splitlines()
        text = lines[int(number) - 1] if int(number) <= len(lines) else ""
        found = re.search(r"signed-by=(/[^\s\]]+)", text)
    return found.group(1) if found else None


def configured_sources():
    """The Debian archives among the machine's apt sources, in either file format."""
    listing = subprocess.run(
        ["apt-get", "indextargets", "--no-release-info", "--format",
         "$(REPO_URI) $(RELEASE) $(COMPONENT) $(SOURCESENTRY)", "Created-By: Packages"],
        stdout=subprocess.PIPE, text=True, check=False).stdout
    sources = {}
    for uri, suite, component, entry in (line.split() for line in listing.splitlines()):
        if component == "main" and suite.split("-")[0] in DEBIAN_RELEASES:
            sources[uri, suite] = Source(uri, suite, signed_by(entry))
    if not sources:
        raise Failure("apt has no Debian bookworm or trixie archive configured to take kernels from")
    return list(sources.values())


class Archive:
    """A private apt directory over the given source lines, also with the packages of another
    architecture than the host's."""

    def __init__(self, name, lines, foreign=None):
        self.root = cache("apt", f"{name}-{foreign}" if foreign else name)
        for part in ("lists/partial", "cache/archives/partial"):
            (self.root / part).mkdir(parents=True, exist_ok=True)
        (self.root / "sources.list").write_text("".join(lines))
        self.options = ["-q"]
        for setting in (f"Dir::Etc::sourcelist={self.root}/sources.list",
                        "Dir::Etc::sourceparts=-",
                        f"Dir::State::lists={self.root}/lists",
                        f"Dir::Cache={self.root}/cache",
                        "APT::Get::List-Cleanup=0",
                        # apt's unprivileged download user cannot write into this user's cache.
                        "APT::Sandbox::User=root"):
            self.options += ["-o", setting]
        for architecture in (host(), foreign) if foreign else ():
            self.options += ["-o", f"APT::Architectures::={architecture}"]
        say(f"reading package lists for {self.root.name}")
        with lock(f"apt-{self.root.name}"):
            run(["apt-get", *self.options, "update"])

    def names(self, pattern):
        """Package names that match, newest version last."""
        names = run(["apt-cache", *self.options, "pkgnames"]).split()
        matching = [name for name in names if re.fullmatch(pattern, name)]
        return sorted(matching, key=lambda name: [int(n) for n in re.findall(r"\d+", name)])

    def depends(self, package):
        """The names of the packages that a package depends on."""
        shown = run(["apt-cache", *self.options, "show", "--no-all-versions", package])
        line = re.search(r"^Depends: (.*)$", shown, re.M)
        return re.findall(r"(?:^|[,|] *)([^ ,|:]+)", line[1]) if line else []

    def download(self, packages, into):
        into.mkdir(parents=True, exist_ok=True)
        say(f"downloading {', '.join(packages)}")
        run(["apt-get", *self.options, "download", *packages], cwd=into)
        return [next(into.glob(f"{package.partition(':')[0]}_*.deb")) for package in packages]

    def download_source(self, package, into):
        """The archive with the unpatched source of a package; apt checks it as it does packages."""
        into.mkdir(parents=True, exist_ok=True)
        say(f"downloading the source of {package}")
        run(["apt-get", *self.options, "source", "--download-only", "--tar-only", package], cwd=into)
        return next(into.glob(f"{package}_*.orig.tar.*"))


def host():
    """The architecture of this machine."""
    return run(["dpkg", "--print-architecture"]).strip()


def debian(foreign=None):
    """The archives this machine is configured with."""
    return Archive("debian", [source.line() for source in configured_sources()], foreign)


def release():
    """The plain release this machine is configured with."""
    for source in configured_sources():
        if source.suite in DEBIAN_RELEASES:
            return source
    raise Failure("apt has no plain Debian release configured to derive others from")


def backports(foreign=None, suite="trixie-backports"):
    """The same mirror and keyring, another suite."""
    return Archive(suite, [release().line(suite)], foreign)


def sources(suite):
    """The source packages of a suite, of the same mirror and keyring."""
    return Archive(f"{suite}-sources", [release().line(suite).replace("deb ", "deb-src ", 1)])


def wrapper(root, command):
    """A script that runs a program with the loader and the libraries that are unpacked in root (a usr
    folder): for programs that need newer libraries than this machine has."""
    return (f'#!/bin/sh\nexec "{root}/lib64/ld-linux-x86-64.so.2" --library-path '
            f'"{root}/lib/x86_64-linux-gnu" {command} "$@"\n')
