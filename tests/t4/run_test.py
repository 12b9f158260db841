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
    "ptx": ["-gencode", "arch=compute_75,code=compute_75", "-no-compress", "-cudart", "shared"],
    "calls": ["-gencode", "arch=compute_75,code=sm_75", "-no-compress", "-cudart", "shared",
              "-DWITH_A_CALL_THAT_IS_MISSING", "-Xlinker", "-z,lazy"],
}


def find_nvcc():
    return shutil.which("nvcc") or next(iter(glob.glob("/usr/local/cuda/bin/nvcc")), None)


def has_nvdisasm():
    return (os.environ.get("WARPRANK_NVDISASM") or shutil.which("nvdisasm")
            or os.path.exists("/usr/local/cuda/bin/nvdisasm") or glob.glob(f"{ROOT}/build/nvdisasm/bin/nvdisasm"))


# Cycles of a step of tests/t4/micro.cu, or GB/s, within PER_CENT of what others have measured. Of a T4: "Dissecting the
# NVidia Turing T4 GPU via Microbenchmarking" (Jia et al., 2019), NVIDIA's data sheet, and bandwidthTest of CUDA's
# samples; of the same multiprocessors in a larger card: "An Instruction-Level Characterisation of the NVIDIA TU102 GPU"
# (Connolly, 2026).
PER_CENT = 10
CYCLES = {"l1": 32, "l2": 188, "shared": 22, "shuffle": 25, "exponential": 15, "barrier_of_1": 22, "barrier_of_8": 36,
          "barrier_of_32": 84}
MEMORY_CYCLES = 188 + 0.138 * 1590  # of the T4's L2, and of what a TU102 takes behind its own
COPY, PEAK = 239.6, 320  # GB/s; a read is between them
PRODUCTS_PER_CYCLE = 512  # of a multiprocessor, in tensor cores
GIGAHERTZ, MULTIPROCESSORS = 1.59, 40


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        for name, options in OPTIONS.items():
            program = f"{cls.folder.name}/{name}"
            subprocess.run([find_nvcc(), "-std=c++17", *options, f"{HERE}/sample.cu", "-o", program], check=True)
        subprocess.run([find_nvcc(), "-std=c++17", *OPTIONS["good"], f"{HERE}/micro.cu", "-o",
                        f"{cls.folder.name}/micro"], check=True)

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
        newer = {"T4_TIME": "1", "T4_CARD": f"{ROOT}/tools/t4/cards/h100.card"}
        other = self.run_program("./other", **newer)
        self.assertEqual(other.returncode, 0, other.stderr)
        self.assertRegex(other.stdout, r"sum (\S+) of \1 in 3 launches")
        self.expect_line(self.run_program("./good", **newer), "no code for sm_90", "got sm_75")
        self.expect_line(self.run_program("./good", T4_TIME="1", T4_CARD="/nowhere"), "/nowhere cannot be read")

    def test_kernels_with_one_limit_take_what_others_have_measured(self):
        report = f"{self.folder.name}/micro.json"
        ran = self.run_program("./micro", T4_REPORT=report)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        by_name = {}
        with open(report, encoding="utf-8") as file:
            for line in file:
                launch = json.loads(line)
                name, steps = launch["name"].split()
                by_name.setdefault(name, []).append((int(steps), launch["cycles"]))
        of_step = {name: (two[1] - one[1]) / (two[0] - one[0]) for name, (one, two) in by_name.items()}

        def expect(name, value, expected):
            print(f"{name}: {value:.4g}, published {expected:.4g}: {100 * (value / expected - 1):+.1f} %")
            self.assertLess(abs(value / expected - 1), PER_CENT / 100, name)

        for name, cycles in CYCLES.items():
            expect(name, of_step.pop(name), cycles)
        expect("memory", of_step.pop("dram"), MEMORY_CYCLES)
        expect("copy, GB/s", 32 * GIGAHERTZ / of_step.pop("copy"), COPY)
        read = 16 * GIGAHERTZ / of_step.pop("read")
        print(f"read, GB/s: {read:.4g}, between {COPY} and {PEAK}")
        self.assertTrue((1 - PER_CENT / 100) * COPY < read < PEAK, read)
        expect("L2, GB/s", 16 * 163840 * GIGAHERTZ / of_step.pop("read_l2"), 1270)
        products = 4 * 16 * 8 * 8 * 16 / of_step.pop("products")
        expect("products", products, PRODUCTS_PER_CYCLE)
        self.assertFalse(of_step)

    def test_a_store_out_of_bounds_is_named(self):
        ran = self.run_program("./good", "store")
        self.expect_line(ran, "4 bytes at 0x", "of global memory are out of bounds: 0 behind the 4000 bytes", "STG",
                         "store_behind")
        self.assertIn("700 (cudaErrorIllegalAddress)", ran.stdout)

    def test_an_endless_wait_ends(self):
        self.expect_line(self.run_program("./good", "wait"), "an endless wait", "wait_for")

    def test_an_endless_wait_between_blocks_ends(self):
        self.expect_line(self.run_program("./good", "blocks"), "an endless wait", "wait_for_the_other")
        ran = self.run_program("./good", "blocks", T4_TIME="1")
        self.assertGreater(ran.returncode, 0)
        self.assertRegex(ran.stderr, "(?m)^t4: .*an endless wait.*wait_for_the_other")

    def test_code_that_a_t4_does_not_run_is_refused(self):
        self.expect_line(self.run_program("./other"), "no code for sm_75", "got sm_90")
        self.expect_line(self.run_program("./compressed"), "compressed", "-no-compress")
        self.expect_line(self.run_program("./ptx"), "no code for sm_75", "got PTX for sm_75")
        self.expect_line(self.run_program("./static"), "the runtime within", "-cudart shared")

    def test_a_call_that_is_missing_is_named(self):
        ran = self.run_program("./calls")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.expect_note(ran)
        ran = self.run_program("./calls", "call")
        self.assertGreater(ran.returncode, 0, "it went on, or ended with a signal")
        self.expect_note(ran)

    def expect_note(self, ran):
        self.assertEqual(ran.stderr.splitlines()[0], "t4: not known, and fails where it is called: cudaDeviceSetLimit")

    def test_what_needs_other_libraries_is_refused(self):
        for library, *parts in [("libcudart.so.12", "needs libcudart.so.12", "expected libcudart.so.13"),
                                ("libcuda.so.1", "needs libcuda.so.1", "nothing of NVIDIA's but the runtime"),
                                ("libcublasLt.so.13", "needs libcublasLt.so.13", "nothing of NVIDIA's but the runtime")]:
            for path, text in [("call.c", "void call(void) {}"), ("main.c", "void call(void); int main() { call(); }")]:
                with open(f"{self.folder.name}/{path}", "w", encoding="utf-8") as file:
                    file.write(text)
            for command in (["-shared", f"-Wl,-soname,{library}", "call.c", "-o", library],
                            ["main.c", library, "-o", "other_library"]):
                subprocess.run(["cc", *command], cwd=self.folder.name, check=True)
            self.expect_line(self.run_program("./other_library"), *parts)

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
