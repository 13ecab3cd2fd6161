# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every loader on files of both kinds: correct bytes pass, a wrong one is detected. Memory: what is over a bound is red."""

import os
import tempfile
import unittest

import consumers
import content
import memory
from consumers import peaks, results
from load import attempt
from loaders import LOADERS

SIZE = 64 << 20
SEED = 0xFFFF_FFFF_FFFF_FFF1


class Content(unittest.TestCase):
    def test_content_is_as_its_formula_says(self) -> None:
        """At an end inside a word, too."""
        words = b"".join(((i * content.FACTOR + SEED) % (1 << 64)).to_bytes(8, "little") for i in range(100))
        self.assertEqual(content.expected(16, 797, SEED).tobytes(), words[16:797])


class Loaders(unittest.TestCase):
    def check(self, name: str, path: str, wrong_at: int) -> None:
        """A whole file, then the same with one byte changed."""
        layout = content.Layout.of_file(path)
        result, reason = attempt(name, path, SEED)
        self.assertIsNotNone(result, reason)
        self.assertEqual((result["verified"], result["bytes"]), (True, layout.tensor_bytes), result)
        self.assertGreater(result["seconds"], 0)
        content.flip(path, wrong_at)
        result, reason = attempt(name, path, SEED)
        content.flip(path, wrong_at)
        self.assertIsNotNone(result, reason)
        tensor, begin = next((key, value.begin) for key, value in layout.tensors.items() if value.begin <= wrong_at < value.end)
        self.assertEqual((result["verified"], result["difference"]), (False, f"tensor {tensor} differs at its byte {wrong_at - begin}"))

    def test_every_byte_is_compared_and_short_files_are_refused(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        many, few, short = (os.path.join(folder, f"{kind}.safetensors") for kind in ("many", "few", "short"))
        content.write(many, SIZE, 4096, SEED)
        content.write(few, SIZE, 8, SEED)
        with open(few, "rb") as whole, open(short, "wb") as part:
            part.write(whole.read(os.path.getsize(few) - 8192))
        for name in LOADERS:
            for path, wrong_at in ((many, os.path.getsize(many) - content.Layout.of_file(many).data_begin - 1), (few, SIZE // 2 + 4097)):
                with self.subTest(name, path=path):
                    self.check(name, path, wrong_at)
            with self.subTest(name, path=short):
                result, reason = attempt(name, short, SEED)
                self.assertIsNone(result)
                self.assertTrue(reason.startswith(f"{name}: "), reason)


class Memory(unittest.TestCase):
    def setUp(self) -> None:
        # On a disk: /tmp may be in memory.
        self.folder = self.enterContext(tempfile.TemporaryDirectory(dir=".", prefix=".dmabuf-dio-bench-"))

    def test_loaders_take_multiples_of_the_file(self) -> None:
        path = os.path.join(self.folder, "few.safetensors")
        content.write(path, 4 * SIZE, 8, SEED)
        for name, process, cache in (("numpy-fromfile", 1, 1), ("torch-mmap", 0, 1), ("dmabuf-dio-numpy", 1, 0), ("dmabuf-dio-torch", 1, 0)):
            with self.subTest(name):
                row = memory.measure(name, path)
                self.assertNotIn("unavailable", row)
                self.assertAlmostEqual(row["peak_bytes"] / os.path.getsize(path), process, delta=0.05)
                self.assertAlmostEqual(row["cached_bytes"] / os.path.getsize(path), cache, delta=0.05)

    def test_program_beyond_its_bound_is_named(self) -> None:
        content.write(f"{self.folder}/model.safetensors", 2 * SIZE, 32, SEED)
        row = consumers.measure("`get_tensor`, kept", 1, self.folder)
        self.assertIn("ours_process", row)
        self.assertEqual(peaks.over([results.Row(row)]), [])
        row["ours_process"] = [part + SIZE for part in row["ours_process"]]
        self.assertEqual(len(peaks.over([results.Row(row)])), 1, row)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
