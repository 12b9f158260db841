#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/gpu_check.sh makes of good and bad luck, with stand-ins for the tools and for what they build."""

import glob
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# "Builds" all programs as one that goes by its name; LUCK says what goes wrong.
CMAKE = """#!/bin/bash
if [[ $1 == --build ]]; then
  [[ " $LUCK " == *" broken "* ]] && echo "tests/a.cpp(7): error: expected a ;"
  [[ " $LUCK " == *" slow-build "* ]] && sleep 60
  mkdir -p $2/tests/gpu $2/benchmarks $2/examples
  for program in $TESTS; do
    [[ " $LUCK " == *" unbuilt:$program "* ]] && continue
    cp $PROGRAM $2/tests/gpu/$program
    echo "[1/9] Linking CUDA executable tests/gpu/$program"
  done
  for program in $BENCHMARKS models_run_model; do cp $PROGRAM $2/benchmarks/$program; done
  cp $PROGRAM $2/examples/embed_in_service
  [[ " $LUCK " != *" unbuilt:"* ]]
else
  [[ " $LUCK $*" != *" no-cli11 "*BENCHMARKS=ON* ]]
fi
"""
PROGRAM = """#!/bin/bash
name=$(basename $0)
[[ " $LUCK " == *" fails:$name "* ]] && exit 1
[[ " $LUCK " == *" hangs:$name "* ]] && sleep 60
[[ " $LUCK " == *" small:$name "* ]] && { echo "out of device memory"; exit 1; }
case $name in
  *_test_gpu | gpu_two_libraries)
    [[ " $LUCK " == *" no-gpu "* ]] && { echo "SKIPPED 5 tests: there is no GPU (no driver)"; exit 77; }
    [[ " $LUCK " == *" skips:$name "* ]] && echo "[  SKIPPED ] 2 tests, listed below:"
    echo "[  PASSED  ] 3 tests." ;;
  *_bench_gpu)
    for argument; do [[ $argument == --benchmark_out=* ]] && out=${argument#*=}; done
    cut=
    [[ " $LUCK " == *" cut:$name "* ]] || cut='"x_unfused": 2.0}]}'
    echo '{"context": {"host_name": "secret", "executable": "/secret"}, "benchmarks": [
      {"name": "fm/items:100/cold/iterations:20/manual_time", "min_us": 5.0, "bytes": 1e6, "flops": 1e6,
       "copy_GB/s": 4000.0},
      {"name": "fm/items:100/warm/iterations:20/manual_time", "min_us": 1.0, "bytes": 1e6, "flops": 1e6},
      {"name": "fm/items:500/cold", "min_us": 9.0, '"$cut" >$out ;;
  embed_in_service)
    while [[ $1 != --csv ]]; do shift; done
    { echo engine,contexts,items,asked,served,p50_ms,p90_ms,p99_ms,p99.9_ms,max_ms,per_batch,refused
      echo cuda,1,100,500,500,0.1,0.2,0.3,0.4,0.5,1,0; } >$2 ;;
esac
"""
NVIDIA_SMI = """#!/bin/bash
case $* in
  *name*) echo "$CARD" ;;
  *) echo "1980 MHz, 3201 MHz, 40, 100 W, none" ;;
esac
"""
SANITIZER = """#!/bin/bash
[[ " $LUCK " == *" no-sanitizer "* ]] && { echo "Device not supported"; exit 1; }
for argument; do [[ -f $argument && -x $argument ]] && exec $argument; done
"""
NVCC = "#!/bin/bash\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n"

sys.path.insert(0, f"{ROOT}/scripts")
import gpu_check  # noqa: E402


class GpuCheck(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.card = "NVIDIA H200, 9.0, 580.1, 143771 MiB, 700 W"
        os.makedirs(f"{self.folder}/bin")
        for name, text in {"cmake": CMAKE, "program": PROGRAM, "nvcc": NVCC, "nvidia-smi": NVIDIA_SMI,
                           "compute-sanitizer": SANITIZER, "torch.py": "raise ImportError"}.items():
            path = f"{self.folder}/bin/{name}"
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def check(self, *luck, options=()):
        """Runs it; returns (exit status, the report)."""
        if "no-gpu" in luck:
            os.remove(f"{self.folder}/bin/nvidia-smi")
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "LUCK": " ".join(luck),
                       "PYTHONPATH": f"{self.folder}/bin", "CARD": self.card, "PROGRAM": f"{self.folder}/bin/program",
                       "TESTS": " ".join(gpu_check.test_programs()),
                       "BENCHMARKS": " ".join(gpu_check.benchmark_programs())}
        self.out = f"{self.folder}/out"
        done = subprocess.run([f"{ROOT}/scripts/gpu_check.sh", self.out, "--build", f"{self.folder}/build", *options],
                              env=environment, capture_output=True, text=True, check=False)
        self.assertTrue(os.path.exists(f"{self.out}/report.md"), done.stdout + done.stderr)
        with open(f"{self.out}/report.md", encoding="utf-8") as file:
            return done.returncode, file.read()

    def test_reports_everything_in_at_most_eight_files(self):
        status, report = self.check()
        self.assertEqual(status, 0, report)
        for text in ("0 steps failed", "NVIDIA H200", "580.1", "1980 MHz", "13.0.88", "| card | ops_fm_kernel_test_gpu | ok | 3 |",
                     "| t4 | ops_fm_kernel_test_gpu | ok | 3 |", "| card | racecheck: gpu_two_libraries | ok | 3 |",
                     "roofline.svg", "speedups.svg", "latency.svg", "fm/items:100/cold"):
            self.assertIn(text, report)
        self.assertNotIn("secret", report)
        files = glob.glob(f"{self.out}/**", recursive=True)[1:]
        self.assertLessEqual(len(files), 8, files)
        with open(f"{self.out}/gpu.json", encoding="utf-8") as file:
            record = json.load(file)
        self.assertEqual(record["machine"]["card"], "NVIDIA H200")
        with open(f"{self.out}/roofline.svg", encoding="utf-8") as file:
            roofline = file.read()
        self.assertIn("items:100/cold", roofline)
        self.assertNotIn("warm", roofline)
        self.assertEqual(len(record["latency"]), 3)

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

    def test_leaves_out_what_is_not_there(self):
        self.card = "NVIDIA Unheard Of 9000, 9.0, 1.0, 8000 MiB, 70 W"
        status, report = self.check("no-sanitizer", "small:ops_fm_kernel_test_gpu")
        self.assertEqual(status, 0, report)
        for text in ("predictions: NVIDIA Unheard Of 9000 is not among the cards", "PyTorch: it is not installed",
                     "compute-sanitizer: this machine does not",
                     "| card | ops_fm_kernel_test_gpu | left out: too little memory |"):
            self.assertIn(text, report)

    def test_leaves_out_what_it_cannot_build_benchmarks_with(self):
        status, report = self.check("no-cli11", "skips:ops_mix_kernel_test_gpu", options=["--quick"])
        self.assertEqual(status, 0, report)
        self.assertIn("benchmarks, PyTorch, latency: cmake does not find", report)
        self.assertIn("| card | ops_fm_kernel_test_gpu | ok | 3 |", report)
        self.assertIn("| card | ops_mix_kernel_test_gpu | ok, 2 skipped | 3 |", report)

    def test_keeps_what_a_benchmark_wrote_before_its_time_was_over(self):
        program = gpu_check.benchmark_programs()[0]
        status, report = self.check(f"cut:{program}", options=["--quick"])
        self.assertEqual(status, 0, report)
        with open(f"{self.out}/gpu.json", encoding="utf-8") as file:
            names = [m["name"] for m in json.load(file)["benchmarks"][program]]
        self.assertEqual([name.split("/iterations")[0] for name in names], ["fm/items:100/cold", "fm/items:100/warm"])

    def test_ends_in_time(self):
        begin = time.monotonic()
        status, report = self.check("slow-build", options=["--minutes", "0.1"])
        self.assertLess(time.monotonic() - begin, 50)  # the build alone would take 60 seconds
        self.assertEqual(status, 1, report)  # nothing was tested
        self.assertIn("0 steps failed, 0 programs of tests passed", report)
        self.assertIn("| card | build for 90-real | left out: no time to build", report)
        status, report = self.check("slow-build", "broken", options=["--minutes", "0.1"])
        self.assertIn("| card | build for 90-real | FAILED: build.log |", report)


if __name__ == "__main__":
    unittest.main()
