#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/package_benchmarks.py puts into a bundle, with small programs in place of those for GPUs."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{ROOT}/scripts")
import package_benchmarks  # noqa: E402

# As a test where there is no GPU; its exception needs libstdc++.
PROGRAM = """
#include <cstdio>
#include <stdexcept>
#include <string>
int main() {
  std::FILE* data = std::fopen("tests/ids/vectors.json", "r");
  try {
    if (data == nullptr) throw std::runtime_error("no data");
  } catch (const std::exception& e) {
    std::puts(e.what());
    return 1;
  }
  std::puts("SKIPPED 5 tests: there is no GPU (no driver)");
  return 77;
}
"""


class PackageBenchmarks(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        os.makedirs(f"{self.folder}/build/tests/gpu")
        with open(f"{self.folder}/program.cpp", "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        self.name = "support_kernel_testing_kernel_test_gpu"
        subprocess.run(["c++", "-O1", f"{self.folder}/program.cpp", "-Wl,-rpath,$ORIGIN/../../lib", "-o",
                        f"{self.folder}/build/tests/gpu/{self.name}"], check=True)

    def assemble(self):
        os.makedirs(f"{self.folder}/bundle", exist_ok=True)
        return package_benchmarks.assemble(f"{self.folder}/bundle", {"card": (f"{self.folder}/build", [self.name])},
                                           {"commit": "abcdef1", "id": "1", "architectures": "90"})

    def test_takes_libraries_but_those_of_the_machine(self):
        says = self.assemble()
        self.assertIn("libstdc++.so.6", says["libraries"])
        self.assertFalse([name for name in says["libraries"] if name.startswith(("libc.so", "libm.so", "ld-linux"))])
        self.assertEqual(sorted(os.listdir(f"{self.folder}/bundle/lib")), says["libraries"])
        self.assertRegex(says["glibc"], r"^2\.\d+$")
        self.assertEqual(says["programs"], {"card": [self.name]})

    def test_runs_elsewhere_up_to_no_gpu(self):
        self.assemble()
        os.rename(f"{self.folder}/build", f"{self.folder}/gone")
        done = subprocess.run([f"{self.folder}/bundle/run", f"{self.folder}/out", "--quick"], cwd="/",
                              env={"PATH": "/nowhere:/usr/bin:/bin"}, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("0 steps failed, 0 programs of tests passed. There is no GPU that programs can use (no driver)",
                      done.stdout)
        with open(f"{self.folder}/out/gpu.json", encoding="utf-8") as file:
            record = json.load(file)
        self.assertEqual((record["commit"], record["command"]), ("abcdef1", "./run OUTDIR --quick"))

    def test_refuses_an_older_c_library_in_one_line(self):
        self.assemble()
        path = f"{self.folder}/bundle/bundle.json"
        with open(path, encoding="utf-8") as file:
            says = json.load(file)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**says, "glibc": "2.999"}, file)
        done = subprocess.run([f"{self.folder}/bundle/run", f"{self.folder}/out"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^expected glibc 2\.999 or newer, .*, got [\d.]+\n$")

    def test_knows_what_is_left_to_the_machine(self):
        for name in ("libc.so.6", "libcuda.so.1", "ld-linux-x86-64.so.2", "libpthread.so.0", "libm.so.6"):
            self.assertTrue(package_benchmarks.NOT_TAKEN.fullmatch(name), name)
        for name in ("libcudart.so.13", "libmvec_like.so", "libstdc++.so.6", "libhwy.so.1", "libgpu_first_library.so"):
            self.assertFalse(package_benchmarks.NOT_TAKEN.fullmatch(name), name)
        self.assertTrue(package_benchmarks.AT_RUN_TIME.fullmatch("libcublasLt.so.13"))


if __name__ == "__main__":
    unittest.main()
