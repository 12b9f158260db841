#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the model of tools/t4 against measurements: kernels with the parameters of an H100, beside what the record of
benchmarks on one says.

    scripts/check_t4_model.py                 the table, the median and the worst; fails where they are beyond LIMITS
    scripts/check_t4_model.py --only fm dot   of some ops
    scripts/check_t4_model.py --update        writes tests/t4_model.json, for tools/performance.py

The code is of the record's commit, which is built below build/record/ for sm_75 with today's benchmarks/measure_cuda.cuh
(minutes of nvcc, once). The card ran code for sm_90, with other instructions, and policies of its own: what comes of
that is among the errors. Times are of one call whose data the L2 has, with the launch.
"""

import argparse
import concurrent.futures
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECORD = f"{ROOT}/benchmarks/results/h100-80gb/gpu.json"
FILE = f"{ROOT}/tests/t4_model.json"
CARD = f"{ROOT}/tools/t4/cards/h100.card"
OURS = ("measure_cuda.cuh", "timed_calls.cuh", "simulated.hpp")  # of benchmarks/: how calls are timed
# By op, what is compared: up to 16 requests or 1,000 rows.
CASES = {
    "attention": r"attention/(items|self)",
    "cross": r"cross/full/.*/rows:100/",
    "din_attention": r"din_attention/requests:1/|din_attention/requests:16/.*dim:(32|64)/",
    "dot": r"dot/requests:1/items:(100|1000)/|dot/requests:16/",
    "elementwise": r"elementwise/.*/rows:(100|1000)/",
    "embedding_bag": r"embedding_bag/cuembed/rows:1M/dim:32/batch:1024/hot:(1|64)/alpha:0.00/",
    "experts": r"experts/scenes:8/rows:(50|200)/",
    "fm": r"fm/requests:1/items:(100|1000)/|fm/requests:16/",
    "linear": r"linear/in:(600|1024)/.*/rows:(1|100|500)/",
    "mix": r"mix/.*/rows:(100|500)/",
    "mlp": r"mlp/(600|256)_.*/rows:(1|50|100|500)/",
    "row_programs": r"row_programs/.*/rows:(100|1000)/",
    "segment_reduce": r"segment_reduce/segments:(1|16)/",
}
# Parameters of the cards were fitted to these, and to nothing else of the record.
FITTED = r"(dot|fm)/requests:1/items:100/|row_programs/(concat|sigmoid).*/rows:100/|attention/items:100/requests:1/"
# Sizes that are served: a request of 100 items.
NAMED = r"(dot|fm)/requests:1/items:100/|attention/items:100/requests:1/|din_attention/requests:1/items:100/" \
        r"|(mlp|linear|mix|row_programs|elementwise|cross)/.*/rows:100/|embedding_bag/.*hot:1/|segments:1/"
# What the card had, where code for sm_75 takes a T4's: how work is divided.
CARD_POLICIES = (
    ("include/warprank/ops/detail/linear/tiling.hpp", "return target >= 90 ? 132 : target >= 80 ? 108 : 40;",
     "return target >= 75 ? 132 : 0;"),
    ("include/warprank/ops/detail/mlp/policy.hpp", "return target >= 90 ? 132 : target >= 80 ? 108 : 40;",
     "return target >= 75 ? 132 : 0;"),
    ("include/warprank/ops/detail/din_attention/chained/layout.hpp", "return target >= 80 && steps",
     "return target >= 75 && steps"),
)
LIMITS = {"median": 15, "named": 30}  # per cent


def build(commit, ops):
    """The folder with the programs of that commit's benchmarks."""
    tree = f"{ROOT}/build/record/{commit}"
    if not os.path.exists(f"{tree}/build/CMakeCache.txt"):
        os.makedirs(tree, exist_ok=True)
        archive = subprocess.run(["git", "-C", ROOT, "archive", commit], capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)
        definitions = {"CMAKE_BUILD_TYPE": "Release", "WARPRANK_CUDA": "ON", "CMAKE_CUDA_ARCHITECTURES": "75",
                       "CMAKE_CUDA_RUNTIME_LIBRARY": "Shared", "CMAKE_CUDA_FLAGS": "-no-compress",
                       "WARPRANK_BUILD_TESTS": "OFF", "WARPRANK_BUILD_EXAMPLES": "OFF", "WARPRANK_INSTALL": "OFF",
                       "WARPRANK_BENCH_WITHOUT_CUBLASLT": "ON"}
        subprocess.run(["cmake", "-S", tree, "-B", f"{tree}/build", "-G", "Ninja",
                        *[f"-D{name}={value}" for name, value in definitions.items()]], check=True)
        for path, old, new in CARD_POLICIES:
            with open(f"{tree}/{path}", encoding="utf-8") as file:
                text = file.read()
            if old not in text:
                sys.exit(f"{path} of {commit} has no line {old}")
            with open(f"{tree}/{path}", "w", encoding="utf-8") as file:
                file.write(text.replace(old, new))
    for name in OURS:
        with open(f"{ROOT}/benchmarks/{name}", encoding="utf-8") as file:
            text = file.read()
        path = f"{tree}/benchmarks/{name}"
        if not os.path.exists(path) or open(path, encoding="utf-8").read() != text:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    targets = [f"ops_{op}_bench_gpu" for op in ops]
    subprocess.run(["cmake", "--build", f"{tree}/build", "--target", *targets], check=True)
    return f"{tree}/build/benchmarks"


def case_of(name):
    """"dot/.../warm" of "dot/.../warm/iterations:20/manual_time"."""
    return name.split("/iterations")[0]


def measured(record, op):
    return {case_of(one["name"]): one["min_us"] for one in record["benchmarks"].get(f"ops_{op}_bench_gpu", [])
            if case_of(one["name"]).endswith("/warm") and re.match(CASES[op], case_of(one["name"]))}


def simulated(program, pattern):
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out.json"
        ran = subprocess.run([f"{ROOT}/tools/t4/run", program, f"--benchmark_filter=^({pattern}).*warm",
                              f"--benchmark_out={out}", "--benchmark_out_format=json"], capture_output=True, text=True,
                             check=False, env={**os.environ, "T4_CARD": CARD})
        if ran.returncode != 0:
            sys.exit(f"{program} failed with {ran.returncode}:\n{(ran.stdout + ran.stderr)[-2000:]}")
        with open(out, encoding="utf-8") as file:
            return {case_of(one["name"]): one["min_us"] for one in json.load(file)["benchmarks"] if "min_us" in one}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, metavar="OP", default=list(CASES))
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    with open(RECORD, encoding="utf-8") as file:
        record = json.load(file)
    programs = build(record["commit"], options.only)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        times = pool.map(lambda op: simulated(f"{programs}/ops_{op}_bench_gpu", CASES[op]), options.only)
        rows = [{"case": case.removesuffix("/warm"), "simulated_us": round(by_model[case], 2),
                 "measured_us": round(us, 2), "error": round(100 * (by_model[case] / us - 1), 1),
                 "fitted": bool(re.match(FITTED, case)), "named": bool(re.search(NAMED, case))}
                for op, by_model in zip(options.only, times) for case, us in measured(record, op).items()
                if case in by_model]
    for row in rows:
        print(f"{row['case']:75}{row['simulated_us']:9.2f}{row['measured_us']:9.2f}{row['error']:+8.1f} %"
              f"{'  fitted' if row['fitted'] else ''}{'  named' if row['named'] else ''}")
    errors = [abs(row["error"]) for row in rows]
    checked = [abs(row["error"]) for row in rows if not row["fitted"]]
    worst = max((row for row in rows if row["named"]), key=lambda row: abs(row["error"]), default=None)
    print(f"{len(rows)} cases: median error {statistics.median(errors):.1f} %, of the {len(checked)} that nothing was "
          f"fitted to {statistics.median(checked or errors):.1f} %, worst {max(errors):.1f} %")
    if worst:
        print(f"worst of the {sum(row['named'] for row in rows)} of serving size: {worst['case']}, "
              f"{worst['error']:+.1f} %")
    if options.update:
        with open(FILE, "w", encoding="utf-8") as file:
            lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
            file.write(f'{{"commit": "{record["commit"]}", "card": "{record["machine"]["card"]}", "cases": [\n'
                       f'{lines}\n]}}\n')
    if statistics.median(errors) > LIMITS["median"] or worst and abs(worst["error"]) > LIMITS["named"]:
        sys.exit(f"beyond the limits: {LIMITS['median']} % in the median, {LIMITS['named']} % at serving size")


if __name__ == "__main__":
    main()
