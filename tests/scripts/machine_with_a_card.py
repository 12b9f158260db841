# SPDX-License-Identifier: Apache-2.0
"""A machine with a card, for tests of what runs on one: with stand-ins for the tools and for what they build."""

import os
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, f"{ROOT}/scripts")

# "Builds" all programs as one that goes by its name; LUCK says what goes wrong.
CMAKE = """#!/bin/bash
if [[ $1 == --build ]]; then
  [[ " $LUCK " == *" broken "* ]] && echo "tests/a.cpp(7): error: expected a ;"
  [[ " $LUCK " == *" slow-build "* ]] && sleep 600
  mkdir -p $2/tests/gpu
  for program in ${@:6}; do
    [[ $program == -- ]] && break
    [[ " $LUCK " == *" unbuilt:$program "* ]] || cp $PROGRAM $2/tests/gpu/$program
  done
  [[ " $LUCK " != *" unbuilt:"* ]]
else
  [[ " $LUCK $*" != *" no-cli11 "*BENCHMARKS=ON* ]]
fi
"""
PROGRAM = """#!/bin/bash
name=$(basename $0)
[[ " $LUCK " == *" fails:$name "* ]] && exit 1
[[ " $LUCK " == *" hangs:$name "* ]] && sleep 600
[[ " $LUCK " == *" lacks:$name "* ]] && { echo "$name: error while loading shared libraries: libx.so.1: no"; exit 127; }
[[ " $LUCK " == *" small:$name "* ]] && { echo "out of device memory"; exit 1; }
[[ " $LUCK " == *" fills:$name "* ]] && {
  dd if=/dev/zero of=$FULL/filling bs=1M 2>/dev/null
  printf '%9000s\n' "more than the last page of a log has room for"; }
case $name in
  *_test_gpu | gpu_two_libraries)
    [[ " $LUCK " == *" no-gpu "* ]] && { echo "SKIPPED 5 tests: there is no GPU (no driver)"; exit 77; }
    [[ " $LUCK " == *" old-driver "* ]] && { echo "SKIPPED 5 tests: there is no GPU (driver is too old)"; exit 77; }
    [[ " $LUCK " == *" old-ptx:$name "* ]] && {
      echo "SKIPPED 5 tests: there is no GPU (use device 0: CUDA error 222 (cudaErrorUnsupportedPtxVersion))"; exit 77; }
    [[ " $LUCK " == *" skips:$name "* ]] && echo "[  SKIPPED ] 2 tests, listed below:"
    echo "[  PASSED  ] 3 tests." ;;
  *_bench_gpu)
    for argument; do [[ $argument == --benchmark_out=* ]] && out=${argument#*=}; done
    [[ $* == *=^policy/* ]] && { echo '{"benchmarks": [{"name": "policy/fm_rows_per_warp/fm/warm", "us 1": 3.0,
      "us 2": 2.5}]}' >$out; exit; }
    [[ " $LUCK " == *" none:$name "* ]] && { : >$out; echo "Failed to match any benchmarks against regex: x"; exit; }
    cut=
    [[ " $LUCK " == *" cut:$name "* ]] || cut='"x_unfused": 2.0}]}'
    echo '{"context": {"host_name": "secret", "executable": "/secret"}, "benchmarks": [
      {"name": "fm/items:100/cold/iterations:20/manual_time", "min_us": 5.0, "bytes": 1e6, "flops": 1e6,
       "copy_GB/s": 4000.0},
      {"name": "fm/items:100/warm/iterations:20/manual_time", "min_us": 1.0, "bytes": 1e6, "flops": 1e6},
      {"name": "fm/items:500/cold", "min_us": 9.0, '"$cut" >$out ;;
  embed_in_service)
    [[ $* == --help ]] && { echo "  --wait ENUM:value in {block->0,spin->1} OR {0,1}"; exit; }
    while [[ $1 != --csv ]]; do shift; done
    [[ " $LUCK " == *" cut:$name "* ]] && { printf engine,contexts >$2; exit; }
    { echo engine,contexts,items,asked,served,p50_ms,p90_ms,p99_ms,p99.9_ms,max_ms,per_batch,refused
      echo cuda,1,100,500,500,0.1,0.2,0.3,0.4,0.5,1,0; } >$2 ;;
  tune_linears) echo '{}' >$2 ;;
esac
"""
NVIDIA_SMI = """#!/bin/bash
case $* in
  *name*) echo "$CARD" ;;
  *compute-apps*) [[ " $LUCK " == *" shared "* ]] && echo 4711 ;;
  *ecc*) echo "Enabled, P0, Enabled, Default, 4 MiB, 1980 MHz" ;;
  *) [[ " $LUCK " == *" hot "* ]] && why=0x0000000000000040 || why=0x0000000000000001
     echo "1980 MHz, 3201 MHz, 40, 100 W, $why" ;;
esac
"""
SANITIZER = """#!/bin/bash
[[ " $LUCK " == *" no-sanitizer "* ]] && { echo "Device not supported"; exit 1; }
for argument; do [[ -f $argument && -x $argument ]] && program=$argument; done
lost=" $LUCK " name=$(basename $program)
if [[ $lost == *" lost:$name "* || $lost == *" lost-and-found:$name "* ]]; then
  $program
  echo "========= Internal Sanitizer Error: Detected a failure to track a kernel launch."
  [[ $lost == *" lost:$name "* ]] && echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"
  [[ $lost == *" lost:$name "* ]] || echo "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)"
  exit 1
fi
exec $program
"""
NVCC = "#!/bin/bash\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n"
NOTHING = "#!/bin/bash\n"  # what there is to say of a script's libraries and symbols


class MachineWithACard(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.card = "NVIDIA H200, 9.0, 580.95.05, 143771 MiB, 700 W"
        os.makedirs(f"{self.folder}/bin")
        for name, text in {"cmake": CMAKE, "program": PROGRAM, "nvcc": NVCC, "nvidia-smi": NVIDIA_SMI,
                           "compute-sanitizer": SANITIZER, "ldd": NOTHING, "objdump": NOTHING, "strip": NOTHING,
                           "torch.py": "raise ImportError"}.items():
            path = f"{self.folder}/bin/{name}"
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def environment(self, luck):
        return {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "LUCK": " ".join(luck),
                "PYTHONPATH": f"{self.folder}/bin", "CARD": self.card, "FULL": f"{self.folder}/out", "PROGRAM": f"{self.folder}/bin/program"}

    def check(self, *luck, options=()):
        """Runs self.program; returns (exit status, the report)."""
        if "no-gpu" in luck:
            os.remove(f"{self.folder}/bin/nvidia-smi")
        self.out = f"{self.folder}/out"
        done = subprocess.run([*self.program, self.out, *options], env=self.environment(luck), capture_output=True,
                              text=True, check=False)
        self.printed = done.stdout
        self.assertTrue(os.path.exists(f"{self.out}/report.md"),
                        f"exit status {done.returncode}: {done.stdout}{done.stderr}")
        with open(f"{self.out}/report.md", encoding="utf-8") as file:
            return done.returncode, file.read()
