# SPDX-License-Identifier: MIT OR Apache-2.0
"""The examples in the documents run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import models
import pytest

ROOT = Path(__file__).parents[3]
# Examples for programs that this environment lacks are marked: tests/consumers runs them.
DOCUMENTS = [
    ROOT / name
    for name in ("docs/python.md", "docs/models.md", "docs/faces.md", "README.md", "bindings/python/README.md")
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.parent.name + "-" + path.name)
def test_document_examples_run(document: Path, folder: Path, content: bytes) -> None:
    examples = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)
    assert examples
    here = folder / f"examples-{DOCUMENTS.index(document)}"
    here.mkdir()
    (here / "model.bin").write_bytes(content)
    models.safetensors(here / "model.safetensors", {"weight": ("F32", [2, 4], content[:32])}, {"format": "pt"})
    # One program, as a reader types one example after the other.
    (here / "program.py").write_text("\n".join(examples))
    run = subprocess.run(
        [sys.executable, "program.py"], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert run.returncode == 0, run.stdout
    if document.name == "faces.md":
        assert (here / "copy.bin").read_bytes() == content[4096 : 4096 + (1 << 16)]
    if document.name == "python.md":
        assert "1 view lives: a memoryview or array taken at" in run.stdout
        assert (here / "copy.bin").read_bytes() == content


def test_smoke_program_runs() -> None:
    """As it runs in every other interpreter."""
    subprocess.run([sys.executable, Path(__file__).with_name("smoke.py"), ROOT / "README.md"], check=True)
