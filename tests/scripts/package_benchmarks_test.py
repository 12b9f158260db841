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

# Throws through frames of a thread, and draws two words that are equal once in 2^32.
OLD = """
#include <cstdio>
#include <random>
#include <stdexcept>
#include <thread>
int main() {
  bool is_caught = false;
  std::thread([&] {
    try {
      throw std::runtime_error("x");
    } catch (const std::exception&) {
      is_caught = true;
    }
  }).join();
  std::random_device draw("arc4random");
  const bool is_drawn = draw() != draw();
  std::printf("%s, %s\\n", is_caught ? "caught" : "lost", is_drawn ? "drawn" : "constant");
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

    def test_leaves_what_is_behind_a_library_of_run_time(self):
        def link(name, code, *others):
            path = f"{self.folder}/{name}"
            subprocess.run(["c++", "-shared", "-fPIC", "-x", "c++", "-", "-x", "none", *others, f"-Wl,-soname,{name}",
                            f"-Wl,-rpath,{self.folder}", "-o", path], input=code, text=True, check=True)
            return path
        behind = link("libbehind.so.1", "int behind() { return 1; }")
        found = link("libcublasLt.so.99", "int behind(); int found() { return behind(); }", behind)
        beside = link("libbeside.so.1", "int beside() { return 2; }")
        before = link("libbefore.so.1", "int beside(); int before() { return beside(); }", beside)
        subprocess.run(["c++", "-x", "c++", "-", "-x", "none", found, before, f"-Wl,-rpath,{self.folder}", "-o",
                        f"{self.folder}/build/tests/gpu/{self.name}"], check=True, text=True,
                       input="int found(); int before(); int main() { return found() + before(); }")
        says = self.assemble()
        self.assertEqual(says["needs"], ["libcublasLt.so.99"])
        self.assertIn("libbefore.so.1", says["libraries"])
        self.assertIn("libbeside.so.1", says["libraries"])
        self.assertNotIn("libbehind.so.1", says["libraries"])

    def test_unwinds_and_draws_without_a_newer_c_library(self):
        """What is linked in place of the C library's newer functions does what these do."""
        program, added = f"{self.folder}/old", f"{self.folder}/glibc_2_31.o"
        with open(f"{program}.cpp", "w", encoding="utf-8") as file:
            file.write(OLD)
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-c", f"{ROOT}/cmake/glibc_2_31.c", "-o", added],
                       check=True)
        subprocess.run(["c++", "-O1", f"{program}.cpp", added, "-static-libstdc++", "-static-libgcc", "-pthread", "-o",
                        program], check=True)
        done = subprocess.run([program], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "caught, drawn\n"))
        taken = subprocess.run(["nm", "-D", "--undefined-only", program], capture_output=True, text=True, check=True)
        self.assertNotRegex(taken.stdout, "_dl_find_object|arc4random|__libc_single_threaded")

    def test_refuses_a_folder_without_a_system(self):
        with self.assertRaisesRegex(SystemExit, "expected a system to link against, .* got '/nowhere'"):
            package_benchmarks.flags_for_debian11("/nowhere", self.folder)

    def test_builds_with_the_toolkit_that_is_named(self):
        done = subprocess.run([f"{ROOT}/scripts/package_benchmarks.sh", f"{self.folder}/lab.tar.xz", "--cuda", "/nowhere"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("expected a toolkit, as scripts/fetch_cuda.sh makes it, got '/nowhere' without bin/nvcc", done.stderr)
        path, flags = os.environ["PATH"], {}
        self.addCleanup(os.environ.update, PATH=path)
        os.environ["PATH"] = f"{self.folder}:{path}"
        for version in ("12.4", "12.8", "13.0"):
            with open(f"{self.folder}/nvcc", "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\necho Cuda compilation tools, release {version}, V{version}.1\n")
            os.chmod(f"{self.folder}/nvcc", 0o755)
            self.assertEqual(package_benchmarks.cuda_version(), version)
            flags[version] = package_benchmarks.compression()
        self.assertEqual(flags, {"12.4": "-Xfatbin=-compress-all", "12.8": "--compress-mode=size",
                                 "13.0": "--compress-mode=size"})

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
