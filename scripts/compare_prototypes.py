#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library's kernels beside prototypes of them that were measured on an H100, by the model of a T4 (tools/t4): both
as machine code for sm_75, in one program, on the same data. The prototypes are not in this repository: they are in a
folder that is named, with what adapts them (FOLDER/t4_model/harness). The library's side is benchmarks/prototypes/.

    scripts/compare_prototypes.py FOLDER BUILD                  builds, runs and prints the table
    scripts/compare_prototypes.py FOLDER BUILD --only small     some of it: small din emb mlp
    scripts/compare_prototypes.py FOLDER BUILD --update         writes tests/t4_prototypes.json; then tools/performance.py

BUILD has the target t4_cudart. Minutes of nvcc, below build/prototypes/. Cycles are of a call whose data the L2 has;
where a prototype has several forms, of the quickest. Where one of them never ends, what came before it counts.
"""

import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILE = f"{ROOT}/tests/t4_prototypes.json"
HARNESS = "t4_model/harness"
OURS = f"{ROOT}/benchmarks/prototypes"
# By kind: the folder, its files, what adapts them, the program and the unit with the library's kernels, and arguments.
KINDS = {
    "small": ("small", ("bench.cu", "small.cuh"), "adapt_small.py", "bench.cu", f"{OURS}/small.cu", ["-DTARGET=75"],
              ["all"]),
    "din": ("din", ("bench.cu", "din.cuh"), "adapt_din.py", "bench.cu", f"{OURS}/din.cu", ["-DTINY", "-DTARGET=75"],
            []),
    "emb": ("embedding", ("bench.cu", "today.hpp", "embedding.cuh"), "adapt_emb.py", "bench.cu",
            f"{OURS}/look_ups.cu", [], []),
    "mlp": ("mlp", ("bench7.cu", "bench7_base.cu", "common.cuh", "direct.cuh", "rows.cuh", "stream.cuh"),
            "adapt_mlp.py", "bench7.cu", f"{OURS}/mlp.cu", [], []),
}
# The program's functions have other names there, and a T4 gives a block 64 KB of shared memory.
NAMES = [f"-Dsass_{name}=t4_{name}" for name in ("time", "label", "cold")]
SHARED = (r"\b(200|227) << 10\b", "64 << 10")


def newest(sources):
    return max(os.path.getmtime(path) for path in sources)


def compile_unit(source, out, standard, more, headers=()):
    if os.path.exists(out) and os.path.getmtime(out) > newest([source, *headers]):
        return
    subprocess.run(["nvcc", "-O3", f"-std={standard}", "-gencode", "arch=compute_75,code=sm_75", "-no-compress",
                    "-cudart", "shared", "--expt-relaxed-constexpr", "--extended-lambda", "-diag-suppress", "177",
                    *[f"-I{ROOT}/{path}" for path in ("include", "benchmarks", "tests")], *NAMES, *more, "-c", source,
                    "-o", out], check=True)


def copy(source, to, change):
    """Where it differs from what is there: what was compiled stays."""
    with open(source, encoding="utf-8") as file:
        text = re.sub(*SHARED, file.read()) if change else file.read()
    with open(to, "w", encoding="utf-8") as file:
        file.write(text)


def build(folder, runtime, kind):
    where, files, adapts, bench, library, flags, _ = KINDS[kind]
    missing = [path for path in [f"{where}/{name}" for name in files] + [f"{HARNESS}/{adapts}"]
               if not os.path.exists(f"{folder}/{path}")]
    if missing:
        sys.exit(f"{folder} lacks {', '.join(missing)}")
    work = f"{ROOT}/build/prototypes/{kind}"
    os.makedirs(work, exist_ok=True)
    if not os.path.exists(f"{work}/bench.o"):
        for name in files:
            copy(f"{folder}/{where}/{name}", f"{work}/{name}", name.endswith(".cu"))
        subprocess.run([sys.executable, f"{folder}/{HARNESS}/{adapts}", work], check=True)
    compile_unit(f"{work}/{bench}", f"{work}/bench.o", "c++20", flags)
    headers = [path for base in (f"{ROOT}/include", OURS) for path in glob.glob(f"{base}/**/*.*", recursive=True)]
    compile_unit(library, f"{work}/lib.o", "c++17", [f"-I{work}"], headers)
    subprocess.run(["nvcc", "-gencode", "arch=compute_75,code=sm_75", "-cudart", "shared", f"{work}/bench.o",
                    f"{work}/lib.o", "-o", f"{work}/bench", f"-L{runtime}", "-l:libcudart.so.13"], check=True)
    return work


def run(work, runtime, arguments):
    report = f"{work}/report.json"
    if os.path.exists(report):
        os.remove(report)
    ran = subprocess.run([f"{ROOT}/tools/t4/run", f"{work}/bench", *arguments], capture_output=True, text=True,
                         check=False, cwd=work, env={**os.environ, "T4_REPORT": report,
                                                     "WARPRANK_T4_RUNTIME": f"{runtime}/libcudart.so.13"})
    if ran.returncode != 0:  # as where a prototype waits for blocks that do not come
        print(f"{work}/bench ended with {ran.returncode}; of what came before:\n{ran.stderr.splitlines()[-1]}",
              file=sys.stderr)
        if not os.path.exists(report):
            sys.exit(1)
    with open(report, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def pairs(launches):
    """(case, cycles of the library, of the quickest prototype): "CASE library warm", "CASE NEW its form warm"."""
    library, prototypes = {}, {}
    for launch in launches:
        if (found := re.fullmatch(r"(.*?) (library|today|NEW)\b(.*) warm", launch["name"])) is None:
            continue
        case, whose = found[1].replace(" lower", "").strip(), found[2]
        of = prototypes if whose == "NEW" else library
        of.setdefault(case, {}).setdefault(found[3].strip(), 0)
        of[case][found[3].strip()] += launch["cycles"]
    return [(case, min(forms.values()), min(prototypes[case].values())) for case, forms in library.items()
            if case in prototypes]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("build")
    parser.add_argument("--only", choices=KINDS, nargs="+", default=list(KINDS))
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    if options.update and len(options.only) < len(KINDS):
        parser.error("--update needs all kinds, without --only")
    runtime = os.path.abspath(f"{options.build}/tools/t4")
    if not os.path.exists(f"{runtime}/libcudart.so.13"):
        sys.exit(f"{options.build} lacks the T4 in software: cmake --build {options.build} --target t4_cudart")
    if shutil.which("nvcc") is None:
        sys.exit("nvcc is not on PATH")
    rows = []
    for kind in options.only:
        work = build(os.path.abspath(options.folder), runtime, kind)
        for case, library, prototype in pairs(run(work, runtime, KINDS[kind][6])):
            print(f"{case:60}{library:10,}{prototype:10,}{library / prototype:8.2f}", flush=True)
            rows.append([case, library, prototype])
    if options.update:
        with open(FILE, "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
