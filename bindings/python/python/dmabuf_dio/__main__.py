# SPDX-License-Identifier: MIT OR Apache-2.0
"""The command dmabuf-dio: the extension has its code."""

from __future__ import annotations

import signal
import sys

from ._native import command


def main() -> None:
    # Python's own actions; the command has its own, and a command that it runs inherits what is ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    sys.exit(command(["dmabuf-dio", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
