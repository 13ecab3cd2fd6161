# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads to a device: where the goal is missed, and the table."""

import unittest

from figures import devices
from figures.results import GIB, MIB
from tests.samples import found, result


def row(way: str, role: str, *seconds: float, **more: object) -> dict:
    zero = [0] * len(seconds)
    figures = {"seconds": list(seconds), "cpu_seconds": list(seconds), "process_bytes": [256 * MIB] * len(seconds), "pinned_bytes": zero,
               "machine_bytes": zero, "cached_bytes": zero, "warm_bytes": zero}
    return {"size": GIB, "tensors": "few", "way": way, "role": role, **(figures if seconds else {}), **more}


DISK, BUS = row("disk-slow", "disk", 2.0), row("bus", "bus", 0.5)
FLOORS = [DISK, row("disk-fast", "disk", 1.0), BUS]


class Devices(unittest.TestCase):
    def missed(self, *rows: dict) -> list[str]:
        return devices.missed(found(result("device", *rows)).rows)

    def test_goal_is_of_the_slower_floor(self) -> None:
        self.assertEqual(self.missed(row("ours", "ours", 9.0, 1.05, 1.0), *FLOORS), [])
        self.assertEqual(self.missed(row("ours", "ours", 1.06), *FLOORS),
                         ["1 GiB, few tensors: ours reaches 0.94 of the slower of disk and bus, the goal is 0.95"])
        slow = row("bus", "bus", 3.0)
        self.assertEqual(self.missed(row("ours", "ours", 3.1), DISK, slow), [])
        self.assertEqual(len(self.missed(row("ours", "ours", 3.2), DISK, slow)), 1)

    def test_no_other_may_be_faster(self) -> None:
        self.assertEqual(self.missed(row("ours", "ours", 1.0), row("theirs", "theirs", 1.0), *FLOORS), [])
        self.assertEqual(self.missed(row("ours", "ours", 1.0), row("theirs", "theirs", 0.8), *FLOORS),
                         ["1 GiB, few tensors: ours takes 1.25 of the time of theirs"])
        # Not of another file.
        many = [dict(each, tensors="many") for each in (row("ours", "ours", 1.0), *FLOORS)]
        self.assertEqual(self.missed(row("ours", "ours", 1.0), *FLOORS, dict(row("theirs", "theirs", 0.8), tensors="many"), *many),
                         ["1 GiB, many tensors: ours takes 1.25 of the time of theirs"])

    def test_what_cannot_be_told_is_missed(self) -> None:
        self.assertEqual(self.missed(row("ours", "ours", 1.0), DISK),
                         ["1 GiB, few tensors: there are no figures of the disk alone, or of the bus alone"])
        self.assertEqual(self.missed(row("ours", "ours", unavailable="no driver"), *FLOORS), ["1 GiB, few tensors: ours: no driver"])
        self.assertEqual(self.missed(row("ours", "ours", 1.0, warm_bytes=[GIB // 2]), *FLOORS),
                         ["1 GiB, few tensors: ours: 512 MiB were in the page cache before the load, or the kernel does not tell"])

    def test_wrong_bytes_are_missed_once(self) -> None:
        self.assertEqual(self.missed(row("theirs", "theirs", different="tensor a differs"), row("ours", "ours", 1.0), *FLOORS),
                         ["1 GiB, few tensors: theirs: tensor a differs"])
        self.assertEqual(len(self.missed(row("ours", "ours", different="tensor a differs"), *FLOORS)), 1)

    def test_other_loaders_may_be_missing(self) -> None:
        self.assertEqual(self.missed(row("ours", "ours", 1.0), row("theirs", "theirs", unavailable="No module"), *FLOORS), [])

    def test_table_has_figures_and_reasons(self) -> None:
        text = devices.table(found(result("device", row("ours", "ours", 2.0, 1.0, 4.0), row("theirs", "theirs", unavailable="No module"), *FLOORS)))
        self.assertIn("1 GiB, few tensors\n  way ", text)
        self.assertRegex(text, r"\n  ours +2.000 +1.000 - 4.000 +0.54 +0.50 +2.00 +256 +0 +0 +0\n")
        self.assertIn("\n  theirs: No module\n", text)


if __name__ == "__main__":
    unittest.main()
