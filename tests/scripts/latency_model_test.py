#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/latency_model.py finds the constants that times were made with, and says how far off it is."""

import os
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{ROOT}/tools")
import latency_model  # noqa: E402

BEGIN, OPERATION = 1.5, 0.02


def made():
    """Measurements and counts that the formula gives, of everything that was measured."""
    measurements, tests = [], {}
    for i, (name, (test, first_cells)) in enumerate(latency_model.COUNTED.items()):
        operations, rounds = 10 + 37 * i, 1 + i % 4
        width = len(first_cells)
        table = tests.setdefault(test, [[*(f"what {c}" for c in range(width)), "operations", "rounds of loads"]])
        table.append([*first_cells, str(operations), str(rounds)])
        measurements.append({"name": f"{name}warm", "min_us": BEGIN + 0.145 * rounds + OPERATION * operations})
    return measurements, {"tests": {"program": tests}}


class LatencyModel(unittest.TestCase):
    def test_finds_the_constants(self):
        model = latency_model.LatencyModel(*made())
        self.assertAlmostEqual(model.begin, BEGIN, places=6)
        self.assertAlmostEqual(model.operation, OPERATION, places=6)
        self.assertEqual(len(model.cases), len(latency_model.COUNTED))
        self.assertLess(max(model.errors()), 1e-6)

    def test_its_error_is_that_of_cases_which_were_not_fitted(self):
        measurements, counts = made()
        measurements.sort(key=lambda m: m["min_us"])
        measurements[5]["min_us"] *= 1.01  # not fitted: the second, fourth and so on
        model = latency_model.LatencyModel(measurements, counts)
        self.assertAlmostEqual(model.begin, BEGIN, places=6)
        self.assertAlmostEqual(max(model.errors()), 1 - 1 / 1.01, places=6)

    def test_counts_without_rounds_are_left_out(self):
        measurements, counts = made()
        counts["tests"]["program"]["MlpCounts.OfTheLongestWarp"] = [["stack", "operations", "rounds of loads"],
                                                                    ["a", "7", "-"], ["b", "8", "2"]]
        rows = latency_model.counted_rows(counts)["MlpCounts.OfTheLongestWarp"]
        self.assertEqual([latency_model.cells_of(row) for row in rows], [["b"]])

    def test_says_which_row_it_expects(self):
        measurements, counts = made()
        counts["tests"]["program"]["DinCounts.OfTheLongestWarp"] = [["L", "D", "operations", "rounds of loads"]]
        expected = r"expected a row \['100', '64'\] of DinCounts.OfTheLongestWarp, got none"
        with self.assertRaisesRegex(ValueError, expected):
            latency_model.LatencyModel(measurements, counts)

    def test_refuses_too_few_measurements(self):
        measurements, counts = made()
        with self.assertRaisesRegex(ValueError, "expected 6 measurements or more that were counted, got 4"):
            latency_model.LatencyModel(measurements[:4], counts)


if __name__ == "__main__":
    unittest.main()
