# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `dmabuf-dio bench ... --json` prints."""

import json
import pathlib


def read(path: pathlib.Path, bench: str) -> dict:
    """The result in a file, which has to be of that bench."""
    data = json.loads(path.read_text())
    if (data.get("bench"), data.get("schema")) != (bench, 1):
        raise ValueError(f"{path}: not of `dmabuf-dio bench {bench} --json`, schema 1")
    return data
