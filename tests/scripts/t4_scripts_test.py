#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is made of the reports of the T4 in software: its timeline, and the tables that it is held against."""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path[:0] = [f"{ROOT}/scripts", f"{ROOT}/tools"]
import check_t4_model  # noqa: E402 pylint: disable=wrong-import-position
import compare_prototypes  # noqa: E402 pylint: disable=wrong-import-position
import plot_timeline  # noqa: E402 pylint: disable=wrong-import-position


def launch(name, cycles, blocks=()):
    return {"name": name, "cycles": cycles, "blocks": list(blocks)}


class Timeline(unittest.TestCase):
    card = plot_timeline.read_card(f"{ROOT}/tools/t4/cards/t4.card")

    def test_launches_follow_each_other_and_blocks_stand_side_by_side(self):
        launches = [launch("a::bag<1>", 1590, [[0, 0, 1590], [0, 100, 1590], [39, 0, 795]]),
                    launch("mlp", 3180, [[1, 0, 3180]])]
        picture = plot_timeline.draw(launches, self.card)
        self.assertIn("bag: 3 blocks, 1.0 us", picture)
        self.assertIn("mlp: 1 blocks, 2.0 us", picture)
        bars = [line for line in picture.splitlines() if line.startswith("<rect x=")]
        self.assertEqual(len(bars), 4)
        height = [float(bar.split('height="')[1].split('"')[0]) for bar in bars]
        self.assertAlmostEqual(height[0] * 2, height[1], delta=0.2)
        self.assertAlmostEqual(height[0], height[2], delta=0.2)
        left = [float(bar.split('x="')[1].split('"')[0]) for bar in bars]
        self.assertEqual(left[0], left[1])
        self.assertLess(left[1], left[2])
        self.assertLess(left[2], left[3])

    def test_a_report_without_blocks_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/report.json", "w", encoding="utf-8") as file:
                file.write('{"name": "bag", "cycles": 5}\n')
            ran = subprocess.run([sys.executable, f"{ROOT}/tools/plot_timeline.py", f"{folder}/report.json", "--out",
                                  f"{folder}/out.svg"], capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("as T4_BLOCKS=1 has them written", ran.stderr)


class Tables(unittest.TestCase):
    def test_the_quickest_prototype_of_a_case_stands_beside_the_library(self):
        launches = [launch("fm 60 x 16 today warm", 30), launch("fm 60 x 16 today cold", 90),
                    launch("fm 60 x 16 NEW a warm", 25), launch("fm 60 x 16 NEW b warm", 10),
                    launch("fm 60 x 16 NEW b warm", 5), launch("dot today warm", 7)]
        self.assertEqual(compare_prototypes.pairs(launches), [("fm 60 x 16", 30, 15)])

    def test_cases_are_told_apart(self):
        self.assertEqual(check_t4_model.case_of("fm/requests:1/warm/iterations:20/manual_time"), "fm/requests:1/warm")
        record = {"benchmarks": {"ops_fm_bench_gpu": [
            {"name": f"fm/requests:{n}/items:100/dim:16/{how}/iterations:20/manual_time", "min_us": n}
            for n in (1, 16, 64) for how in ("warm", "cold")]}}
        self.assertEqual(check_t4_model.measured(record, "fm"), {"fm/requests:1/items:100/dim:16/warm": 1,
                                                                 "fm/requests:16/items:100/dim:16/warm": 16})

    def test_what_is_beyond_the_limits_is_named(self):
        def row(case, error, named=True, record="h100-80gb"):
            return {"record": record, "case": case, "error": error, "fitted": False, "named": named}
        said, beyond = check_t4_model.problems([row("fm", -10), row("dot", 14), row("mix", 12),
                                                row("fm", 3, record="h200-141gb")])
        self.assertEqual(beyond, [])
        self.assertEqual(said[0], "h100-80gb: 3 cases, median error 12.0 %, of the 3 that nothing was fitted to 12.0 %, "
                                  "worst 14.0 %")
        self.assertEqual(len(said), 2)
        _, beyond = check_t4_model.problems([row("fm", -31), row("dot", 40, named=False), row("mix", 2)])
        self.assertEqual(beyond, [
            "h100-80gb: expected a median of at most 15 %, got 31.0 %",
            "h100-80gb: expected at most 30 % of fm, which is of serving size, got -31.0 %"])
        record, case = check_t4_model.OUTSIDE[0]
        _, beyond = check_t4_model.problems([row("fm", 1, record=record), row(case, -40, record=record),
                                             row("dot", 1, record=record)])
        self.assertEqual(beyond, [])
        _, beyond = check_t4_model.problems([row(case, -4, record=record)])
        self.assertEqual(beyond, [f"{record}: {case} is within 30 % again: take it out of OUTSIDE"])


if __name__ == "__main__":
    unittest.main()
