#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/policies.py finds the constants that times were made with, and chooses by them."""

import os
import random
import re
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{ROOT}/tools")
import policies  # noqa: E402

TILING = """
constexpr int nominal_multiprocessors(int target) { return target >= 90 ? 132 : target >= 80 ? 108 : 40; }
inline constexpr std::array<LinearTileShape, 2> linear_tile_shapes{{
    {"direct 16 x 16", 16, 16, 8, 3, 0, 0, 0, 3, true, false, true},
    {"staged 64 x 64", 64, 64, 4, 0, 32, 32, 4, 3, true, true, true},
}};
"""
CONSTANTS = {"direct 16 x 16": [2, 0.005, 0.04], "staged 64 x 64": [2.5, 0.13, 0.01]}
JOIN = 2.25


def time_of(tile, rows, columns, size, parts):
    """By the formula of tiling.hpp, on a T4."""
    of_rows, inputs, outputs = size
    steps = -(-(-(-inputs // 32)) // parts)
    blocks = -(-of_rows // rows) * -(-outputs // columns) * parts
    begin, per_wave, per_card = CONSTANTS[tile]
    return begin + steps * (per_wave * -(-blocks // 40) + per_card * blocks / 40) + (JOIN if parts > 1 else 0)


def record(noise=0.0, name="T4", capability="7.5"):
    draw, measured = random.Random(7), []
    for inputs, outputs in ((256, 256), (600, 256), (1024, 1024), (2528, 2048)):
        for rows in (1, 16, 50, 100, 500, 1000):
            size = (rows, inputs, outputs)
            ways = {"direct 16 x 16": time_of("direct 16 x 16", 16, 16, size, 1),
                    "staged 64 x 64": time_of("staged 64 x 64", 64, 64, size, 1), "cublaslt": 0.5}
            for parts in (2, 4):
                ways[f"staged 64 x 64 in {parts} parts"] = time_of("staged 64 x 64", 64, 64, size, parts)
            measured.append({"name": f"linear/in:{inputs}/out:{outputs}/rows:{rows}/warm/iterations:20/manual_time",
                             "iterations": 20,
                             **{f"us {way}": us * (1 + noise * draw.uniform(-1, 1)) for way, us in ways.items()}})
    return {"machine": {"card": name, "compute capability": capability},
            "benchmarks": {policies.LINEAR_SWEEP: measured}}


class Policies(unittest.TestCase):
    def test_finds_the_constants(self):
        fit = policies.LinearFit(record(), TILING)
        self.assertEqual((fit.target, fit.multiprocessors), (75, 40))
        self.assertEqual(fit.constants,
                         {"direct 16 x 16": [2, 0.005, 0.04, 0], "staged 64 x 64": [2.5, 0.13, 0.01, JOIN]})
        self.assertEqual({round(loss, 9) for loss in fit.losses().values()}, {1})

    def test_noise_moves_them_little(self):
        fit = policies.LinearFit(record(noise=0.03), TILING)
        for tile, expected in CONSTANTS.items():
            for got, value in zip(fit.constants[tile], expected):
                self.assertAlmostEqual(got, value, delta=0.05 * value + 0.01)
        self.assertLess(max(fit.losses().values()), 1.08)

    def test_a_library_is_no_way_of_ours(self):
        fit = policies.LinearFit(record(), TILING)
        self.assertGreater(min(fit.best.values()), 2)
        head, *rows = policies.linear_sweep_table(record(), TILING)
        self.assertEqual(head[-1], "cublaslt us")
        self.assertEqual(rows[0], ["in:256/out:256/rows:1", "direct 16 x 16", "2.17", "direct 16 x 16", "2.17", "0.50"])

    def test_the_newest_record_of_a_card_counts(self):
        records = [("new", record()), ("old", record(noise=0.3)), ("h100", record(capability="9.0"))]
        text = policies.linear_costs_text(records, TILING)
        self.assertEqual(re.findall(r"results/(\w+)\.json", text), ["new", "h100"])
        self.assertLess(text.index("{75, {{"), text.index("{90, {{"))
        self.assertIn("{2.5, 0.13, 0.01, 2.25},  // staged 64 x 64", text)

    def test_a_sweep_that_was_cut_short_decides_nothing(self):
        cut = record()
        cut["benchmarks"][policies.LINEAR_SWEEP][5:] = []
        with self.assertRaisesRegex(ValueError, "expected 6 sizes or more of .*, got [0-5]"):
            policies.LinearFit(cut, TILING)
        with self.assertRaisesRegex(ValueError, "expected a record with sweeps_linear_bench_gpu, got none"):
            policies.linear_costs_text([("cut", cut)], TILING)
        self.assertEqual(len(policies.linear_sweep_table(cut, TILING)), 6)

    def test_other_sweeps_show_the_best_beside_the_rule(self):
        measured = [{"name": "mlp/256_1/rows:1/warm/iterations:20", "us by rule": 4.1, "us layers": 7.0, "us split": 4.0,
                     "us cublaslt": 3.0}, {"name": "mlp/256_1/rows:2/warm"}]
        self.assertEqual(policies.sweep_table("sweeps_mlp_bench_gpu", measured)[1:],
                         [["mlp/256_1/rows:1", "split", "4.00", "4.10", "3.00"]])

    def test_says_what_it_expects_of_the_table_of_tiles(self):
        with self.assertRaisesRegex(ValueError, "expected linear_tile_shapes"):
            policies.LinearFit(record(), "")


if __name__ == "__main__":
    unittest.main()
