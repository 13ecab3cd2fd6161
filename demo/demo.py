# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads a real model on this machine and, into a dma-buf, in a guest. Prints a table at the end."""

import json
import os
import pathlib
import subprocess
import sys

from rich import box
from rich.console import Console
from rich.table import Table

REPO = pathlib.Path(__file__).resolve().parent.parent
COMMAND = REPO / "target" / "release" / "dmabuf-dio"
MIB = 1 << 20

console = Console(width=None if sys.stdout.isatty() else 100)


def say(text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]")


def forget_cache(model: pathlib.Path) -> None:
    """Drops the file's pages from the page cache, so that every load starts cold."""
    with open(model, "rb") as file:
        # Dirty pages of a new download would stay in the cache.
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def load(model: pathlib.Path, *options: str) -> dict:
    forget_cache(model)
    out = subprocess.run(
        [COMMAND, "load", model, "--verify", "--json", *options],
        stdout=subprocess.PIPE, check=True,
    ).stdout
    return json.loads(out)


def documents(text: str) -> list[dict]:
    """The consecutive JSON objects in `text`."""
    decoder, found, text = json.JSONDecoder(), [], text.strip()
    while text:
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:].strip()
    return found


def in_guest(model: pathlib.Path) -> list[dict]:
    out = subprocess.run(
        [REPO / "vm" / "run", "--kernel", "6.12", "--icount", "--put", model,
         "--",
         REPO / "demo" / "in-guest", model.name],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout
    return documents(out)


def row(where: str, report: dict) -> tuple[str, ...]:
    cpu = report["cpu_seconds"]
    # In the guest one nanosecond of CPU time is one instruction; elapsed time means nothing there.
    counted = where == "guest"
    return (
        where,
        report["backend"],
        "dma-buf" if report["buffer"] == "dmabuf" else report["buffer"],
        report["mode"],
        "" if counted else f"{report['seconds'] * 1000:.0f} ms",
        f"{cpu * 1e3:,.1f} M instr" if counted else f"{cpu * 1000:.0f} ms",
        f"+{(report['page_cache_grown'] or 0) / MIB:.1f} MiB",
        report["verify"]["buffer_sha256"][:8],
    )


def main(model: pathlib.Path) -> int:
    console.print(f"The model: {model.name}, {model.stat().st_size:,} bytes")

    say("1. What this machine supports: dmabuf-dio doctor")
    subprocess.run([COMMAND, "doctor", model], check=True)

    say("2. On this machine: a buffered read, then the best backend")
    # The first time costs more: a virtual machine gets its memory when it is first touched.
    host = [(load(model, *options), load(model, *options))[1] for options in (("--backend", "buffered"), ())]
    subprocess.run([COMMAND, "load", model], check=True)

    say("3. In a guest with Debian's Linux 6.12 and the kernel module: into a dma-buf")
    console.print("The emulator counts instructions, so this takes about a minute.")
    with console.status("running the guest"):
        *guest, device = in_guest(model)

    table = Table(title=f"{model.name}, {model.stat().st_size / MIB:.1f} MiB, not cached",
                  box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("where", "backend", "buffer", "mode"):
        table.add_column(column, no_wrap=True)
    for column in ("time", "CPU", "page cache"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("SHA-256", no_wrap=True)
    for report in host:
        table.add_row(*row("host", report))
    for report in guest:
        table.add_row(*row("guest", report))
    table.add_row("guest", "edu DMA", "dma-buf", "read back", "", "", "",
                  device["device_sha256"][:8])
    console.print()
    console.print(table)

    hashes = {report["verify"][of] for report in host + guest
              for of in ("buffer_sha256", "file_sha256")} | {device["device_sha256"]}
    if len(hashes) != 1:
        console.print(f"[red]The contents differ: {sorted(hashes)}[/red]")
        return 1
    before, after = guest[0]["cpu_seconds"], guest[1]["cpu_seconds"]
    console.print(
        "[bold]host[/bold] is this machine. [bold]guest[/bold] is Debian's Linux 6.12 with the kernel module; "
        "the emulator counts\ninstructions (M = millions), and elapsed time means nothing there.\n"
        f"All contents match: SHA-256 {hashes.pop()}.\n"
        f"Loading into the dma-buf took {before / after:.0f} times fewer instructions with the module than "
        "with the\nbuffered read, and no page cache.\n"
        "Most of the rest is Debian's kernel zeroing new memory (init_on_alloc=1): docs/notes/measuring.md."
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(pathlib.Path(sys.argv[1])))
    except subprocess.CalledProcessError as error:
        sys.exit(f"demo: {pathlib.Path(error.cmd[0]).name} failed with status {error.returncode}, see above")
