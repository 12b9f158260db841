#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scores a batch of each reference model by the compiled engine's machine code for a T4 (tools/t4), and holds the scores
against the host's engine: every kernel that models need runs once.

    scripts/check_models.py build/t4-software               one request of 20 items
    scripts/check_models.py build/t4-software --items 100 --only dlrm

The build has the targets models_run_model and t4_cudart. Prints launches, and the largest difference, for each model.
"""

import argparse
import concurrent.futures
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODELS = ("wide_deep", "dlrm", "dcn_v2", "din_mmoe", "meituan_like", "user_heavy", "hstu", "xdeepfm",
          "auto_int", "wukong", "dien", "mtgr")
TABLE_ROWS = 100
# Of a score: the card rounds to halves between layers where the host does not.
ABSOLUTE, RELATIVE = 2e-3, 1e-2


def read_scores(path):
    """{output: values} of a safetensors file of floats."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    return {name: struct.unpack_from(f"<{(one['data_offsets'][1] - one['data_offsets'][0]) // 4}f", data,
                                     one["data_offsets"][0])
            for name, one in header.items() if name != "__metadata__"}


def score(program, model, items, engine):
    """The scores, and a line for each launch."""
    launcher = [f"{ROOT}/tools/t4/run"] if engine == "cuda" else []
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run([*launcher, program, model, folder, "1", str(items), str(TABLE_ROWS), engine], input="",
                             capture_output=True, text=True, check=False,
                             env={**os.environ, "T4_VERBOSE": "1", "WARPRANK_TUNE_AT_BIND": "0"})
        if ran.returncode != 0:
            sys.exit(f"{model} on {engine} failed with {ran.returncode}:\n{(ran.stdout + ran.stderr)[-2000:]}")
        return read_scores(f"{folder}/scores.safetensors"), re.findall(r"^t4: (.*?): grid ", ran.stderr, re.M)


def check(program, model, items):
    expected, _ = score(program, model, items, "host")
    got, launches = score(program, model, items, "cuda")
    if got.keys() != expected.keys() or not launches:
        return f"{model}: outputs {sorted(got)} in {len(launches)} launches, expected {sorted(expected)}", launches
    differences = [(abs(a - b) / (ABSOLUTE + RELATIVE * abs(b)), a, b) for name in expected
                   for a, b in zip(got[name], expected[name], strict=True)]
    worst = max(differences)
    print(f"{model}: {len(launches)} launches, {len(differences)} scores, differences up to "
          f"{max(abs(a - b) for _, a, b in differences):.2g}", flush=True)
    wrong = not all(ratio <= 1 for ratio, _, _ in differences)
    return f"{model}: a score is {worst[1]}, expected {worst[2]}" if wrong else None, launches


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--items", type=int, default=20)
    options = parser.parse_args()
    program = f"{options.build}/benchmarks/models_run_model"
    if not os.path.exists(program):
        sys.exit(f"{program} is missing: cmake --build --preset t4-software --target models_run_model t4_cudart")
    models = [options.only] if options.only else MODELS
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda model: check(program, model, options.items), models))
    kernels = {re.sub(r"<.*", "", name).split("::")[-1] for _, launches in results for name in launches}
    print(f"{len(kernels)} kernels: {', '.join(sorted(kernels))}")
    wrong = [message for message, _ in results if message]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
