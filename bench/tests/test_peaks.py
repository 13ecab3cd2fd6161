# SPDX-License-Identifier: MIT OR Apache-2.0
"""Programs that load models stay within their bounds of memory."""

import unittest

from figures import peaks
from figures.results import MIB
from tests.samples import found, result


def row(ours: float, theirs: float = 400, one_by_one: bool = False, **more: object) -> dict:
    """In MiB; a tenth of what safetensors takes is pages of the file."""
    return {"name": "loads", "one_by_one": one_by_one, "kept_bytes": 200 * MIB, "window_bytes": 64 * MIB,
            "safetensors_process": [0.9 * theirs * MIB] * 3, "safetensors_cached": [0.1 * theirs * MIB] * 3,
            "ours_process": [ours * MIB, 1.0, 2 * ours * MIB], "ours_cached": [0, 0, 0], **more}


class Peaks(unittest.TestCase):
    def over(self, *rows: dict) -> list[str]:
        return peaks.over(found(result("peers-consumers", *rows)).rows)

    def test_rows_over_their_bound_are_named(self) -> None:
        self.assertEqual(self.over(row(419), row(279, one_by_one=True)), [])
        self.assertEqual(self.over(row(421)), ["loads: 421 MiB, the bound is 420 MiB"])
        self.assertEqual(self.over(row(281, one_by_one=True)), ["loads: 281 MiB, the bound is 280 MiB"])
        # What safetensors takes bounds both.
        self.assertEqual(self.over(row(270, theirs=250, one_by_one=True)), ["loads: 270 MiB, the bound is 262 MiB"])

    def test_pages_of_files_count(self) -> None:
        self.assertEqual(len(self.over(row(400, ours_cached=[30 * MIB] * 3))), 1)

    def test_what_fails_with_dmabuf_dio_alone_is_named(self) -> None:
        self.assertEqual(self.over({"name": "a", "unavailable": "no torch"}, {"name": "b", "failed": "EIO"}), ["b: EIO"])

    def test_table_has_figures_or_reasons(self) -> None:
        text = peaks.table(found(result("peers-consumers", row(300), {"name": "a", "unavailable": "no torch"})))
        self.assertIn("| loads | 200 | 400 (40) | 300 (0) | 0.75 | 420 |\n| a |  | no torch |  |  |  |\n", text)


if __name__ == "__main__":
    unittest.main()
