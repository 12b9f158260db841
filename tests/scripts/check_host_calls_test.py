#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_host_calls.py finds what nvcc lets pass, and nothing else."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

KERNELS = """
__device__ __forceinline__ float twice(float x) { return 2 * x; }
__host__ __device__ inline float thrice(float x) { return 3 * x; }
template <class Value> __global__ void scale(Value* x) { *x = twice(*x) + thrice(*x); }
"""
BAD = KERNELS + """
template <class Value> Value on_the_host(Value x) { return twice(x); }
float run(float x) { return on_the_host(x); }
"""
GOOD = KERNELS + """
template <class Value> Value on_the_host(Value x) { return thrice(x); }
float run(float* x) { scale<<<1, 1>>>(x); return on_the_host(*x); }
"""
# What nvcc makes of BAD, for machines without it.
STUB = """
#include <cstdlib>
template <class Value> Value on_the_host(Value) { int volatile status = 1; std::exit(status); }
float run(float x) { return on_the_host(x); }
"""


class CheckHostCalls(unittest.TestCase):
    def check(self, source, compiler, suffix):
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/unit{suffix}", "w", encoding="utf-8") as file:
                file.write(source)
            subprocess.run([*compiler, "-O1", "-c", f"unit{suffix}", "-o", "unit.o"], cwd=folder, check=True)
            return subprocess.run([sys.executable, f"{ROOT}/scripts/check_host_calls.py", f"{folder}/unit.o"],
                                  capture_output=True, text=True, check=False)

    def expect_refused(self, done):
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("calls a __device__ function on the host", done.stdout)
        self.assertIn("run(float)", done.stdout)  # into which the template is inlined

    def test_names_who_ends_the_process(self):
        self.expect_refused(self.check(STUB, ["c++"], ".cpp"))

    def test_names_who_calls_a_device_function(self):
        if not shutil.which("nvcc"):
            self.skipTest("nvcc is not on PATH")
        self.expect_refused(self.check(BAD, ["nvcc"], ".cu"))

    def test_lets_kernels_and_functions_of_both_sides_pass(self):
        if not shutil.which("nvcc"):
            self.skipTest("nvcc is not on PATH")
        done = self.check(GOOD, ["nvcc"], ".cu")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)


if __name__ == "__main__":
    unittest.main()
