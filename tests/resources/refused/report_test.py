#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That scripts/kernel_report.py refuses what it should, counts what it prints, and computes occupancies."""

import os
import re
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, "../../../scripts")
sys.path.insert(0, SCRIPTS)
import kernel_report  # noqa: E402


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.report = subprocess.run([sys.executable, f"{SCRIPTS}/kernel_report.py", "--resources", HERE, "kernels",
                                     "--targets", *map(str, kernel_report.LIMITS)], capture_output=True, text=True)

    def assert_says(self, pattern):
        self.assertRegex(self.report.stdout, re.compile(pattern, re.M))

    def test_fails(self):
        self.assertEqual(self.report.returncode, 1)

    def test_refuses_spills(self):
        self.assert_says(r"^kernels: spills on sm_75: \d+ spilled bytes, 0 allowed$")
        self.assert_says(r"^kernels: spills on 75 on 90: \d+ spilled bytes, 0 allowed$")

    def test_refuses_what_exceeds_its_budget(self):
        self.assert_says(r"^kernels: shared on sm_90: \d+ registers, 2 allowed$")
        self.assert_says(r"^kernels: shared on sm_90: 16384 static shared bytes, 1000 allowed$")
        self.assert_says(r"^kernels: shared on sm_90: 128 threads, 64 allowed$")

    def test_refuses_what_exceeds_the_architecture(self):
        self.assert_says(r"^kernels: shared on sm_75: 66384 shared bytes, 65536 allowed$")
        self.assertNotIn("shared on sm_80: 66384", self.report.stdout)

    def test_refuses_kernels_without_budget_and_budgets_without_kernel(self):
        self.assert_says(r"^kernels: not_budgeted: no budget$")
        self.assert_says(r"^kernels: no_such_kernel<\*>: a budget without a kernel$")

    def test_counts_tensor_instructions_where_the_kernel_runs(self):
        self.assert_says(r"^  tensor +32 +0 +\d+ 50% \d+B 4mma +\d+ 50% \d+B 4mma +- +- +- +-$")
        self.assertNotIn("kernels: tensor on sm_75", self.report.stdout)

    def test_refuses_kernels_where_they_are_never_launched(self):
        self.assert_says(r"^kernels: tensor on sm_80: compiled where it is never launched$")

    def test_names_its_seconds(self):
        self.assert_says(r"^kernels: processor seconds of nvcc: sm_75 \d+\.\d, ")


class Columns(unittest.TestCase):
    def test_of_two_architectures_are_compared_with_theirs(self):
        counted = [["registers of", "sm_75", "sm_80", "sm_90"],
                   ["plain", "8", "9", "10"], ["tensor", "-", "32", "-"], ["older", "16", "-", "-"]]
        self.assertEqual(kernel_report.of_builds(counted, ["sm_75", "sm_90"]),
                         [["registers of", "sm_75", "sm_90"], ["plain", "8", "10"], ["older", "16", "-"]])


class Occupancy(unittest.TestCase):
    """Against the figures of the CUDA occupancy calculator."""

    def test_is_limited_by_registers(self):
        self.assertEqual(kernel_report.occupancy(75, 256, 64, 0), 1.0)
        self.assertEqual(kernel_report.occupancy(80, 256, 64, 0), 0.5)
        self.assertEqual(kernel_report.occupancy(80, 256, 40, 0), 0.75)
        self.assertEqual(kernel_report.occupancy(90, 1024, 65, 0), 0)

    def test_is_limited_by_shared_memory(self):
        self.assertEqual(kernel_report.occupancy(75, 128, 32, 32 << 10), 0.25)
        self.assertEqual(kernel_report.occupancy(80, 128, 32, 32 << 10), 0.25)  # 4 blocks of 33 KB in 164 KB
        self.assertEqual(kernel_report.occupancy(75, 128, 32, 65 << 10), 0)

    def test_is_limited_by_blocks(self):
        self.assertEqual(kernel_report.occupancy(75, 32, 16, 0), 0.5)
        self.assertEqual(kernel_report.occupancy(89, 32, 16, 0), 0.5)


class Names(unittest.TestCase):
    def test_are_short(self):
        self.assertEqual(kernel_report.short_name("void warprank::detail::f<4, warprank::float16>(a::B<int>, int)"),
                         "f<4, float16>")
        self.assertEqual(kernel_report.short_name("void w::k<(w::Act)1, w::P<2> >(int)"), "k<(Act)1, P<2> >")
        self.assertEqual(kernel_report.short_name("simt::plain(float*)"), "plain")


if __name__ == "__main__":
    unittest.main()
