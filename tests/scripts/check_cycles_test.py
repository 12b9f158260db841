#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/check_cycles.py takes of reports, and what it refuses."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts"))
import check_cycles  # noqa: E402 pylint: disable=wrong-import-position


def launch(name, cycles):
    return {"name": name, "cycles": cycles}


class CheckCycles(unittest.TestCase):
    def test_the_last_of_the_runs_that_are_alike_is_taken(self):
        report = [launch("fill", 9), launch("bag", 50), launch("mlp", 70), launch("bag", 30), launch("mlp", 40),
                  launch("bag", 20), launch("mlp", 25)]
        self.assertEqual(check_cycles.launches_of(report), [["bag", 20], ["mlp", 25]])
        same = [launch("mlp", cycles) for cycles in (5, 4, 3)]
        self.assertEqual(check_cycles.launches_of(same), [["mlp", 3]])
        with self.assertRaisesRegex(SystemExit, "no two runs are alike: bag, mlp"):
            check_cycles.launches_of([launch("bag", 1), launch("mlp", 2)])

    def test_what_is_slower_by_more_than_the_tolerance_fails(self):
        old = [["bag", 1000], ["mlp", 2000]]
        self.assertEqual(list(check_cycles.differences(old, [["bag", 1020], ["mlp", 100]])), [])
        self.assertEqual(list(check_cycles.differences(old, [["bag", 1021], ["mlp", 2000]])),
                         ["bag takes 1021 cycles, took 1000: +2.1 %"])
        self.assertEqual(list(check_cycles.differences(old, [["bag", 1000]])),
                         ["the launches were ['bag', 'mlp'], are ['bag']"])
        self.assertEqual(len(list(check_cycles.differences([], [["bag", 1000]]))), 1)

    def test_the_file_has_every_case(self):
        with open(check_cycles.FILE, encoding="utf-8") as file:
            kept = list(json.load(file)["cycles"])
        self.assertEqual(kept, [check_cycles.name_of(case) for case in check_cycles.CASES])


if __name__ == "__main__":
    unittest.main()
