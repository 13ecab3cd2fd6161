# SPDX-License-Identifier: MIT OR Apache-2.0
"""bench/device/run with the CPU as the device: every way has figures, a wrong byte is found, and what is missing is said."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(REPO / "bench/peers"))
import content  # noqa: E402
import ways  # noqa: E402

FIGURES = {"seconds", "cpu_seconds", "process_bytes", "pinned_bytes", "machine_bytes", "cached_bytes", "warm_bytes"}
SIZE = 16 << 20


def run(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([REPO / "bench/device/run", *options], capture_output=True, text=True,
                          env=os.environ | {"PYTHON": sys.executable, "DMABUF_DIO_CARRIED": "1"} | variables)


class Device(unittest.TestCase):
    def setUp(self) -> None:
        # On a disk: /tmp may be in memory.
        self.folder = self.enterContext(tempfile.TemporaryDirectory(dir=".", prefix=".dmabuf-dio-bench-"))

    def test_each_way_has_a_row(self) -> None:
        result = pathlib.Path(self.folder, "result.json")
        done = run("--device", "cpu", "--sizes", "16M", "--layouts", "many", "--rounds", "2", "--dir", self.folder, "--output", str(result),
                   DMABUF_DIO_CARRIED="")
        self.assertEqual(done.returncode, 0, done.stderr)
        data = json.loads(result.read_text())
        wanted = [name for name, way in ways.WAYS.items() if not way.needs_device]
        self.assertEqual([row["way"] for row in data["rows"]], wanted)
        for row in data["rows"]:
            with self.subTest(row["way"]):
                self.assertEqual({name: len(row.get(name, [])) for name in FIGURES}, dict.fromkeys(FIGURES, 2), row)
                self.assertIn(f"\n  {row['way']} ", done.stdout)
                if row["role"] == "ours":
                    # No page cache, and the memory of the tensors.
                    self.assertLess(max(row["cached_bytes"]), SIZE / 8)
                    self.assertTrue(0.9 * SIZE < max(row["process_bytes"]) < 1.5 * SIZE, row)
        self.assertLessEqual({"gpu", "torch", "kernel", "file_system", "commit"}, data.keys())
        self.assertNotEqual(data["commit"], "unknown")

    def test_ways_that_load_tensors_find_a_flipped_bit(self) -> None:
        path, small = (os.path.join(self.folder, f"{name}.safetensors") for name in ("wrong", "small"))
        content.write(small, 1 << 20, 8, seed=0)
        content.write(path, SIZE, 8, seed=7)
        content.flip(path, SIZE // 2 + 9)
        for name, way in ways.WAYS.items():
            if not way.needs_device and way.role in ("ours", "theirs"):
                with self.subTest(name):
                    done = subprocess.run([sys.executable, REPO / "bench/device/one.py", name, "cpu", small, path, "7"], input="\n",
                                          capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(REPO / "build/device-site")})
                    said = done.stdout.splitlines()
                    self.assertEqual(len(said), 3, done)
                    self.assertEqual(json.loads(said[2])["difference"], "tensor layers.00004.weight differs")

    def test_what_is_missing_is_said(self) -> None:
        import torch
        if not torch.cuda.is_available():
            done = run()
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("sees no CUDA or HIP device\nhint: ", done.stderr)
        done = run(PYTHON="/usr/bin/false")
        self.assertEqual(done.returncode, 1)
        self.assertIn("hint: it needs CPython", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
