#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/t4/run executes a program that nvcc has compiled, and says in a line what it cannot.

usage: run_test.py LIBCUDART [unittest's arguments]; skipped (77) without nvcc, nvdisasm, or the headers of CUDA 13 that
LIBCUDART is built with.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RUN = f"{ROOT}/tools/t4/run"
OPTIONS = {
    "good": ["-gencode", "arch=compute_75,code=sm_75", "-no-compress", "-cudart", "shared", "-lineinfo"],
    "other": ["-gencode", "arch=compute_90,code=sm_90", "-no-compress", "-cudart", "shared"],
    "compressed": ["-gencode", "arch=compute_75,code=sm_75", "-cudart", "shared", "-Xfatbin", "-compress-all"],
    "static": ["-gencode", "arch=compute_75,code=sm_75", "-no-compress"],
}


def find_nvcc():
    return shutil.which("nvcc") or next(iter(glob.glob("/usr/local/cuda/bin/nvcc")), None)


def has_nvdisasm():
    return (os.environ.get("WARPRANK_NVDISASM") or shutil.which("nvdisasm")
            or os.path.exists("/usr/local/cuda/bin/nvdisasm") or glob.glob(f"{ROOT}/build/nvdisasm/bin/nvdisasm"))


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        for name, options in OPTIONS.items():
            program = f"{cls.folder.name}/{name}"
            subprocess.run([find_nvcc(), "-std=c++17", *options, f"{HERE}/sample.cu", "-o", program], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_program(self, *command, **environment):
        return subprocess.run([RUN, *command], cwd=self.folder.name, capture_output=True, text=True, check=False,
                              env={**os.environ, "WARPRANK_T4_RUNTIME": LIBRARY, **environment})

    def expect_line(self, ran, *parts):
        lines = ran.stderr.splitlines()
        self.assertEqual(len(lines), 1, ran.stderr)
        self.assertTrue(lines[0].startswith("t4: "), lines[0])
        for part in parts:
            self.assertIn(part, lines[0])
        self.assertGreater(ran.returncode, 0, "it ended with a signal, or well")

    def test_a_program_gives_what_the_host_computes(self):
        ran = self.run_program("./good")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""), ran.stdout)
        self.assertRegex(ran.stdout, r"sum (\S+) of \1 in 3 launches")

    def test_launches_are_timed(self):
        report = f"{self.folder.name}/report.json"
        ran = self.run_program("./good", T4_TIME="1", T4_REPORT=report, T4_PROFILE="3")
        self.assertEqual(ran.returncode, 0, ran.stdout)
        with open(report, encoding="utf-8") as file:
            launches = [json.loads(line) for line in file]
        self.assertEqual([launch["name"] for launch in launches], ["sum"] * 3)
        cold, warm, again = (launch["cycles"] for launch in launches)
        self.assertGreater(cold, warm + 200, "its values came from memory")
        self.assertEqual(warm, again)
        self.assertGreater(launches[0]["stalls"]["global memory"], launches[1]["stalls"]["global memory"])
        self.assertEqual(ran.stderr.count("t4: sum: "), 3)
        self.assertRegex(ran.stderr, r"sample.cu:\d+")
        other = self.run_program("./good", T4_TIME="1", T4_CARD=f"{ROOT}/tools/t4/cards/h100.card")
        self.assertEqual(other.returncode, 0, other.stderr)
        self.expect_line(self.run_program("./good", T4_TIME="1", T4_CARD="/nowhere"), "/nowhere cannot be read")

    def test_a_store_out_of_bounds_is_named(self):
        ran = self.run_program("./good", "store")
        self.expect_line(ran, "4 bytes at 0x", "of global memory are out of bounds: 0 behind the 4000 bytes", "STG",
                         "store_behind")
        self.assertIn("700 (cudaErrorIllegalAddress)", ran.stdout)

    def test_an_endless_wait_ends(self):
        self.expect_line(self.run_program("./good", "wait"), "an endless wait", "wait_for")

    def test_code_that_a_t4_does_not_run_is_refused(self):
        self.expect_line(self.run_program("./other"), "no code for sm_75", "got sm_90")
        self.expect_line(self.run_program("./compressed"), "compressed", "-no-compress")
        self.expect_line(self.run_program("./static"), "the runtime within", "-cudart shared")

    def test_what_is_no_program_is_refused(self):
        self.expect_line(self.run_program(f"{HERE}/sample.cu"), "expected an ELF file")
        self.expect_line(self.run_program("./missing"), "No such file")
        self.expect_line(self.run_program("./good", WARPRANK_T4_RUNTIME="/nowhere"), "the runtime is not built")
        ran = self.run_program("./good", WARPRANK_NVDISASM="/bin/false")
        self.expect_line(ran, "/bin/false failed with 1")


if __name__ == "__main__":
    LIBRARY = os.path.abspath(sys.argv.pop(1))
    if not find_nvcc() or not has_nvdisasm() or not os.path.exists(LIBRARY):
        print("SKIPPED: nvcc, nvdisasm or the headers of CUDA 13 are missing")
        sys.exit(77)
    unittest.main()
