#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds what the kernels of the reference models take on a T4, by the model of tools/t4, against tests/cycles.json: a
launch that is more than 2 % slower fails, and whoever means it writes it there.

    scripts/check_cycles.py build/t4-software               all cases of tests/cycles.json
    scripts/check_cycles.py build/t4-software --only dlrm   those of a model
    scripts/check_cycles.py build/t4-software --update      writes them anew; then tools/performance.py

Each case is a batch that was scored before, so that the L2 has what it keeps. The build has the target
models_run_model. Code differs by the version of nvcc: the file has the one it was made with, and others are not held
against it, which is said (77).
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, f"{ROOT}/tools")
from plot_timeline import last_run  # noqa: E402
FILE = f"{ROOT}/tests/cycles.json"
MODELS = ("wide_deep", "dlrm", "dcn_v2", "din_mmoe", "meituan_like", "user_heavy")
CASES = [(model, requests, 100, "fp32") for model in MODELS for requests in (1, 16)]
CASES += [(model, 1, 100, "int8_weights") for model in ("dcn_v2", "meituan_like")]
TABLE_ROWS = 1000
TOLERANCE = 0.02


def name_of(case):
    model, requests, items, precision = case
    return f"{model} {requests} x {items}" + (", weights in INT8" if precision == "int8_weights" else "")


def nvcc_of(build):
    """The release of the nvcc that made a build, as 13.0."""
    with open(f"{build}/CMakeCache.txt", encoding="utf-8") as file:
        compiler = re.search(r"^CMAKE_CUDA_COMPILER:\w+=(.*)$", file.read(), re.M)
    if compiler is None:
        sys.exit(f"{build} was configured without CUDA: expected the preset t4-software")
    version = subprocess.run([compiler[1], "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release ([\d.]+)", version)[1]


def launches_of(report):
    """Those of the last of several runs that are alike."""
    run = last_run(report)
    if len(run) == len(report):
        sys.exit(f"no two runs are alike: {', '.join(launch['name'] for launch in report)}")
    return [[launch["name"], launch["cycles"]] for launch in run]


def measure(program, case):
    model, requests, items, precision = case
    with tempfile.TemporaryDirectory() as folder:
        report = f"{folder}/report.json"
        ran = subprocess.run([f"{ROOT}/tools/t4/run", program, model, folder, str(requests), str(items),
                              str(TABLE_ROWS), "cuda", precision],
                             input="1 1\n", capture_output=True, text=True, check=False,
                             env={**os.environ, "T4_TIME": "1", "T4_REPORT": report, "WARPRANK_TUNE_AT_BIND": "0"})
        if ran.returncode != 0:
            sys.exit(f"{name_of(case)} failed with {ran.returncode}:\n{ran.stderr[-2000:]}")
        with open(report, encoding="utf-8") as file:
            return launches_of([json.loads(line) for line in file])


def differences(old, new):
    """Yields what is worse, as lines."""
    if [name for name, _ in old] != [name for name, _ in new]:
        yield f"the launches were {[name for name, _ in old]}, are {[name for name, _ in new]}"
        return
    for (name, was), (_, now) in zip(old, new):
        if now > was * (1 + TOLERANCE):
            yield f"{name} takes {now} cycles, took {was}: {100 * (now / was - 1):+.1f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--only", metavar="MODEL")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    program = f"{options.build}/benchmarks/models_run_model"
    if not os.path.exists(program):
        sys.exit(f"{program} is missing: cmake --build --preset t4-software --target models_run_model t4_cudart")
    cases = [case for case in CASES if options.only in (None, case[0])]
    if not cases:
        sys.exit(f"there is no model {options.only}: expected one of {', '.join(sorted({case[0] for case in CASES}))}")
    kept = {"nvcc": nvcc_of(options.build), "cycles": {}}
    if os.path.exists(FILE):
        with open(FILE, encoding="utf-8") as file:
            kept = json.load(file)
    nvcc = nvcc_of(options.build)
    if kept["nvcc"] != nvcc and not options.update:
        print(f"SKIPPED: tests/cycles.json was made with nvcc {kept['nvcc']}, this is {nvcc}")
        sys.exit(77)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        measured = dict(zip(map(name_of, cases), pool.map(lambda case: measure(program, case), cases)))
    if options.update:
        cycles = {**(kept["cycles"] if kept["nvcc"] == nvcc else {}), **measured}
        lines = [f" {json.dumps(case)}: [\n" + ",\n".join(f"  {json.dumps(launch)}" for launch in launches) + "\n ]"
                 for case, launches in cycles.items()]
        with open(FILE, "w", encoding="utf-8") as file:
            file.write(f'{{"nvcc": "{nvcc}", "cycles": {{\n' + ",\n".join(lines) + "\n}}\n")
        return
    slower = [f"{case}: {line}" for case, launches in measured.items()
              for line in differences(kept["cycles"].get(case, []), launches)]
    if slower:
        sys.exit("\n".join(slower) + "\nif that is meant: scripts/check_cycles.py BUILD --update")
    print(f"{sum(len(launches) for launches in measured.values())} launches are no slower than they were")


if __name__ == "__main__":
    main()
