# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of `dmabuf-dio-bench table`."""

import pathlib

from . import results
from .results import Object


def read(path: pathlib.Path) -> dict[str, Object]:
    """The rows with figures by name, of one direction."""
    (part,) = Object(results.read(path, "table")).all("parts")
    return {row.name: row for row in part.measured("rows")}
