#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the model of tools/t4 against measurements: kernels with the parameters of an H100 and of an H200, beside what
the records of benchmarks on them say.

    scripts/check_t4_model.py                 the table, the median and the worst; fails where they are beyond LIMITS
    scripts/check_t4_model.py --only fm dot   of some ops
    scripts/check_t4_model.py --update        writes tests/t4_model.json, for tools/performance.py

The code is what the cards ran: that of each record's commit, which is built below build/record/ for sm_90 (minutes of
nvcc, once), with a later way to time calls where that commit did not know the model. Times are of one call whose data
the L2 has, behind another such call, with the launch. Of the newer record those ops are compared whose kernels are
others than in the older one.
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
FILE = f"{ROOT}/tests/t4_model.json"
# How calls are timed, of benchmarks/, for commits that did not know the model: as of the first that did.
FIRST, TIMING = "164eaa6", ("measure_cuda.cuh", "timed_calls.cuh", "simulated.hpp")
# By record of benchmarks/results/, the card of tools/t4/cards/, and the ops: none is all.
RECORDS = {"h100-80gb": ("h100", ()), "h200-141gb": ("h200", ("dot", "elementwise", "fm", "row_programs"))}
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
# Parameters of the cards were fitted to these of the first record: fetch_jump_cycles to those of the first line, and
# l0_kept_launches to these and to those of the second.
FITTED = r"(dot|fm)/requests:1/items:100/|row_programs/(concat|sigmoid).*/rows:100/|attention/items:100/requests:1/" \
         r"|linear/|elementwise/dice/|row_programs/layer_norm/"
# Sizes that are served: a request of 100 items.
NAMED = r"(dot|fm)/requests:1/items:100/|attention/items:100/requests:1/|din_attention/requests:1/items:100/" \
        r"|(mlp|linear|mix|row_programs|elementwise|cross)/.*/rows:100/|embedding_bag/.*hot:1/|segments:1/"
LIMITS = {"median": 15, "named": 30}  # per cent, of each record
# Of serving size and beyond the limit. Not explained: 120 blocks of 272 instructions with 4 trips to descriptors, the
# longest warp; 1,240 cycles simulated, 2,700 measured.
OUTSIDE = (("h200-141gb", "row_programs/concat_60/rows:100/cols:16"),)


def extract(commit, folder, *paths):
    archive = subprocess.run(["git", "-C", ROOT, "archive", commit, *paths], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)


def build(commit, ops):
    """The folder with the programs of that commit's benchmarks."""
    tree = f"{ROOT}/build/record/{commit}"
    if not os.path.exists(f"{tree}/build/CMakeCache.txt"):
        os.makedirs(tree, exist_ok=True)
        extract(commit, tree)
        if not os.path.exists(f"{tree}/benchmarks/simulated.hpp"):
            extract(FIRST, tree, *[f"benchmarks/{name}" for name in TIMING])
        definitions = {"CMAKE_BUILD_TYPE": "Release", "WARPRANK_CUDA": "ON", "CMAKE_CUDA_ARCHITECTURES": "90-real",
                       "CMAKE_CUDA_RUNTIME_LIBRARY": "Shared", "CMAKE_CUDA_FLAGS": "-no-compress",
                       "WARPRANK_BUILD_TESTS": "OFF", "WARPRANK_BUILD_EXAMPLES": "OFF", "WARPRANK_INSTALL": "OFF",
                       "WARPRANK_BENCH_WITHOUT_CUBLASLT": "ON"}
        subprocess.run(["cmake", "-S", tree, "-B", f"{tree}/build", "-G", "Ninja",
                        *[f"-D{name}={value}" for name, value in definitions.items()]], check=True)
    targets = [f"ops_{op}_bench_gpu" for op in ops]
    subprocess.run(["cmake", "--build", f"{tree}/build", "--target", *targets], check=True)
    return f"{tree}/build/benchmarks"


def case_of(name):
    """"dot/.../warm" of "dot/.../warm/iterations:20/manual_time"."""
    return name.split("/iterations")[0]


def measured(record, op):
    return {case_of(one["name"]): one["min_us"] for one in record["benchmarks"].get(f"ops_{op}_bench_gpu", [])
            if case_of(one["name"]).endswith("/warm") and re.match(CASES[op], case_of(one["name"]))}


def simulated(program, pattern, card):
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out.json"
        ran = subprocess.run([f"{ROOT}/tools/t4/run", program, f"--benchmark_filter=^({pattern}).*warm",
                              f"--benchmark_out={out}", "--benchmark_out_format=json"], capture_output=True, text=True,
                             check=False, env={**os.environ, "T4_CARD": f"{ROOT}/tools/t4/cards/{card}.card"})
        if ran.returncode != 0:
            sys.exit(f"{program} failed with {ran.returncode}:\n{(ran.stdout + ran.stderr)[-2000:]}")
        with open(out, encoding="utf-8") as file:
            return {case_of(one["name"]): one["min_us"] for one in json.load(file)["benchmarks"] if "min_us" in one}


def rows_of(name, ops):
    """Of a record: what the model says of each case beside what was measured."""
    card, only = RECORDS[name]
    ops = [op for op in ops if not only or op in only]
    with open(f"{ROOT}/benchmarks/results/{name}/gpu.json", encoding="utf-8") as file:
        record = json.load(file)
    if not ops:
        return []
    programs = build(record["commit"], ops)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        times = list(pool.map(lambda op: simulated(f"{programs}/ops_{op}_bench_gpu", CASES[op], card), ops))
    rows = []
    for op, by_model in zip(ops, times):
        cases = measured(record, op)
        if missing := sorted(cases.keys() ^ by_model.keys()):
            sys.exit(f"{name}: expected each case measured and simulated, got one alone of {', '.join(missing)}")
        rows += [{"record": name, "case": case.removesuffix("/warm"), "simulated_us": round(by_model[case], 2),
                  "measured_us": round(us, 2), "error": round(100 * (by_model[case] / us - 1), 1),
                  "fitted": name == "h100-80gb" and bool(re.match(FITTED, case)),
                  "named": bool(re.search(NAMED, case))} for case, us in cases.items()]
    return rows


def is_outside(row):
    return (row["record"], row["case"]) in OUTSIDE


def problems(rows, has_all=True):
    """The lines that say how far off the model is, and what is beyond LIMITS: medians where all ops are there."""
    said, beyond = [], []
    for name in RECORDS:
        of_record = [row for row in rows if row["record"] == name]
        if not of_record:
            continue
        errors = [abs(row["error"]) for row in of_record]
        checked = [abs(row["error"]) for row in of_record if not row["fitted"]]
        median = statistics.median(errors)
        said.append(f"{name}: {len(errors)} cases, median error {median:.1f} %, of the {len(checked)} that nothing was "
                    f"fitted to {statistics.median(checked or errors):.1f} %, worst {max(errors):.1f} %")
        if has_all and median > LIMITS["median"]:
            beyond.append(f"{name}: expected a median of at most {LIMITS['median']} %, got {median:.1f} %")
        beyond += [f"{name}: expected at most {LIMITS['named']} % of {row['case']}, which is of serving size, got "
                   f"{row['error']:+.1f} %" for row in of_record if row["named"] and not is_outside(row)
                   and abs(row["error"]) > LIMITS["named"]]
        beyond += [f"{name}: {row['case']} is within {LIMITS['named']} % again: take it out of OUTSIDE"
                   for row in of_record if is_outside(row) and abs(row["error"]) <= LIMITS["named"]]
    return said, beyond


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, metavar="OP", default=list(CASES))
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    rows = [row for name in RECORDS for row in rows_of(name, options.only)]
    for row in rows:
        print(f"{row['record']:11}{row['case']:72}{row['simulated_us']:8.2f}{row['measured_us']:8.2f}"
              f"{row['error']:+8.1f} %{'  fitted' if row['fitted'] else ''}{'  named' if row['named'] else ''}"
              f"{'  outside' if is_outside(row) else ''}")
    said, beyond = problems(rows, set(options.only) == set(CASES))
    print("\n".join(said))
    if options.update:
        with open(FILE, "w", encoding="utf-8") as file:
            lines = ",\n".join(f" {json.dumps(row)}" for row in rows)
            file.write(f"[\n{lines}\n]\n")
    if beyond:
        sys.exit("\n".join(beyond))


if __name__ == "__main__":
    main()
