#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/gpu_check.sh builds and runs, with good and bad luck."""

import contextlib
import os
import subprocess
import time
import unittest

from machine_with_a_card import ROOT, MachineWithACard


class GpuCheck(MachineWithACard):
    def setUp(self):
        super().setUp()
        self.program = [f"{ROOT}/scripts/gpu_check.sh", "--build", f"{self.folder}/build"]

    def test_runs_what_it_builds(self):
        status, report = self.check(options=["--quick"])
        self.assertEqual(status, 0, report)
        for text in ("| card | build for 90-real | ok |", "| t4 | build for 75-virtual | ok |",
                     "| card | ops_fm_kernel_test_gpu | ok | 3 |", "| t4 | ops_fm_kernel_test_gpu | ok | 3 |",
                     "| card | latency with 2 contexts | ok |", "| measured by | `scripts/gpu_check.sh OUTDIR --quick` |"):
            self.assertIn(text, report)

    def test_fails_for_a_test_that_fails_and_one_that_was_not_built(self):
        status, report = self.check("fails:ops_fm_kernel_test_gpu", "unbuilt:ops_mix_kernel_test_gpu",
                                    options=["--quick"])
        self.assertEqual(status, 1)
        self.assertIn("| card | ops_fm_kernel_test_gpu | FAILED (1): tests.log |", report)
        self.assertIn("| card | build for 90-real | FAILED: build.log |", report)
        self.assertIn("4 steps failed", report)

    def test_says_what_was_not_run_without_a_gpu_and_fails(self):
        status, report = self.check("no-gpu", options=["--quick"])
        self.assertEqual(status, 1)
        self.assertIn("There is no GPU", report)
        self.assertIn("| t4 | ops_fm_kernel_test_gpu | not run: no GPU | 5 |", report)
        self.assertIn("0 steps failed", report)

    def test_leaves_out_what_it_cannot_build_benchmarks_with(self):
        status, report = self.check("no-cli11", "skips:ops_mix_kernel_test_gpu", options=["--quick"])
        self.assertEqual(status, 0, report)
        self.assertIn("benchmarks, PyTorch, latency: cmake does not find", report)
        self.assertIn("| card | ops_fm_kernel_test_gpu | ok | 3 |", report)
        self.assertIn("| card | ops_mix_kernel_test_gpu | ok, 2 skipped | 3 |", report)

    def test_goes_on_without_a_log(self):
        os.makedirs(f"{self.folder}/out/build.log")
        status, report = self.check(options=["--quick"])
        self.assertEqual(status, 0, report)
        self.assertIn("- all of build.log: Is a directory", report)

    def test_says_in_one_line_that_there_is_no_place_to_build(self):
        with open(f"{self.folder}/build", "w", encoding="utf-8"):
            pass
        done = subprocess.run([*self.program, f"{self.folder}/out"], env=self.environment(["no-cli11"]),
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, f"^{self.folder}/build/gpu-check: .*Not a directory.*\n$")

    def test_reports_what_is_missing_when_it_is_killed(self):
        with subprocess.Popen([*self.program, f"{self.folder}/out"], env=self.environment(["slow-build"]),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            for _ in range(2400):
                time.sleep(0.1)
                with contextlib.suppress(OSError), open(f"{self.folder}/out/build.log", encoding="utf-8") as file:
                    if "card: configure" in file.read():
                        break
            process.terminate()
            printed = process.communicate(timeout=240)[0]
        self.assertEqual(process.returncode, 1, printed)
        with open(f"{self.folder}/out/report.md", encoding="utf-8") as file:
            report = file.read()
        for text in ("The run was ended from outside", "| card | build for 90-real | left out: the run was ended |",
                     "| t4 | build for 75-virtual | left out: the run was ended |",
                     *(f"- {part}: the run was ended" for part in ("tests", "whole models", "PyTorch", "ops", "latency",
                                                                   "compute-sanitizer", "alternatives"))):
            self.assertIn(text, report)

    def test_ends_in_time(self):
        begin = time.monotonic()
        status, report = self.check("slow-build", options=["--minutes", "0.1"])
        self.assertLess(time.monotonic() - begin, 300)  # the build alone would take 600 seconds
        self.assertEqual(status, 1, report)  # nothing was tested
        self.assertIn("0 steps failed, 0 programs of tests passed", report)
        self.assertIn("| card | build for 90-real | left out: no time to build", report)
        status, report = self.check("slow-build", "broken", options=["--minutes", "0.1"])
        self.assertIn("| card | build for 90-real | FAILED: build.log |", report)


if __name__ == "__main__":
    unittest.main()
