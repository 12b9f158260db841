#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels for every architecture and holds what ptxas reports against their budgets.

Each tests/resources/<op>.cu instantiates every kernel that the op launches; <op>.json beside it has their budgets:

    {"fm_kernel<4, *>": {"threads": 128, "registers": 48, "static_shared_bytes": 0, "dynamic_shared_bytes": 0}}

A key is a kernel with its template arguments, without namespaces; `*` stands for anything. `threads` is the block that
is launched, `dynamic_shared_bytes` the most that a launch asks for. Where only some targets run a kernel, "targets":
[80, 86, 89, 90] says which; the others must not have it. "stack_bytes" is 0 unless it is named; spills are always
refused.

"75 on 90" is the code for the T4 as any other card runs it: PTX for compute_75, translated for sm_90.

A cell of the table has the registers, the theoretical occupancy, the bytes of its instructions (16 for each; what a
launch goes through once is fetched once, which costs time), and the tensor instructions in the code where it has some
(mma.sync in PTX, after unrolling). Fails for what exceeds its budget or spills, for a kernel without a budget, and
for a budget without a kernel.

With --tests FOLDER, where kernel tests were built, it also prints what the executor counts: tests/support/counts.hpp.

$WARPRANK_TARGETS, or --targets, leaves out architectures: .ci/run has the first and the last.
"""

import argparse
import concurrent.futures
import dataclasses
import fnmatch
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import check_counts
import elf

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMPILE_TARGET_S = 20

# CUDA C++ Programming Guide, "Technical specifications per compute capability": threads and blocks of a multiprocessor,
# its shared memory, the most that a block may have, and what the system takes of each block's.
# target: (threads, blocks, shared bytes, shared bytes of a block, reserved bytes)
LIMITS = {
    75: (1024, 16, 64 << 10, 64 << 10, 0),
    80: (2048, 32, 164 << 10, 163 << 10, 1 << 10),
    86: (1536, 16, 100 << 10, 99 << 10, 1 << 10),
    89: (1536, 24, 100 << 10, 99 << 10, 1 << 10),
    90: (2048, 32, 228 << 10, 227 << 10, 1 << 10),
}
REGISTERS, REGISTER_UNIT, MAX_REGISTERS, WARP, SCHEDULERS = 65536, 256, 255, 32, 4
STATIC_SHARED_LIMIT = 48 << 10

# (name in the table, architecture whose code it is, architecture that it is translated for), in the order of LIMITS.
BUILDS = [("sm_75", 75, 75), ("75 on 90", 75, 90), *((f"sm_{target}", target, target) for target in (80, 86, 89, 90))]

BUDGET_KEYS = {"threads", "registers", "static_shared_bytes", "dynamic_shared_bytes", "stack_bytes", "targets"}

# Not launched: it is asked what it was compiled for.
NOT_LAUNCHED = {"target_probe"}


@dataclasses.dataclass
class Kernel:
    registers: int
    stack: int
    spills: int
    shared: int  # static
    code: int
    max_threads: int
    mma: int


def round_up(value, unit):
    return -(-value // unit) * unit


def occupancy(target, threads, registers, shared):
    """The share of a multiprocessor's threads that can be resident; 0 when a block does not fit."""
    max_threads, max_blocks, shared_bytes, block_shared, reserved = LIMITS[target]
    warps = -(-threads // WARP)
    registers_of_warp = round_up(max(registers, 1) * WARP, REGISTER_UNIT)
    warps_by_registers = REGISTERS // SCHEDULERS // registers_of_warp * SCHEDULERS
    blocks = min(max_blocks, max_threads // WARP // warps, warps_by_registers // warps)
    if shared > block_shared:
        return 0
    if shared + reserved:
        blocks = min(blocks, shared_bytes // round_up(shared + reserved, 256 if target == 75 else 128))
    return blocks * warps * WARP / max_threads


def find_nvcc():
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    return os.environ.get("NVCC") or shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")


def version_of(nvcc):
    return re.search(r"release .*?V([\d.]+)", subprocess.run([nvcc, "--version"], capture_output=True, text=True,
                                                             check=True).stdout)[1]


def run(command):
    """Runs the command; returns its messages and the seconds of processor time that it took."""
    with tempfile.TemporaryFile("w+") as messages:
        process = subprocess.Popen(command, stdout=messages, stderr=messages)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        messages.seek(0)
        text = messages.read()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{text}")
    return text, usage.ru_utime + usage.ru_stime


def short_name(demangled):
    """void warprank::detail::f<warprank::half, 4>(int) -> f<half, 4>; f<void>, a template to be inline only, -> f"""
    name = demangled.removeprefix("void ")
    depth = 0
    for place, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and not name.startswith("(anonymous", place):
            name = name[:place]
            break
    return re.sub(r"(?:\w+::|\(anonymous namespace\)::)+", "", name).removesuffix("<void>")


def demangle(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, (short_name(line) for line in text.splitlines())))


def parse_ptx(ptx):
    """{mangled name: (threads of a block, mma instructions)}"""
    found = {}
    for entry in re.split(r"^(?=(?:\.visible |\.weak )?\.entry )", ptx, flags=re.M)[1:]:
        threads = re.search(r"^\.maxntid (\d+), (\d+), (\d+)", entry, re.M)
        if threads is None:
            raise RuntimeError(f"a kernel without launch bounds: {entry.splitlines()[0]}")
        name = re.search(r"\.entry (\w+)", entry)[1]
        found[name] = int(threads[1]) * int(threads[2]) * int(threads[3]), len(re.findall(r"\bmma\.sync", entry))
    return found


def parse_ptxas(messages):
    """{mangled name: (registers, stack bytes, spilled bytes, static shared bytes)}"""
    entry = re.compile(
        r"Compiling entry function '(\w+)' for.*?"
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers([^\n]*)",
        re.S)
    found = {}
    for name, stack, stores, loads, registers, rest in entry.findall(messages):
        shared = re.search(r"(\d+) bytes smem", rest)
        found[name] = int(registers), int(stack), int(stores) + int(loads), int(shared[1]) if shared else 0
    return found


def compile_kernels(nvcc, source, target):
    """Returns {build: ({name: Kernel}, seconds of nvcc)} of each of BUILDS that has the code for the target."""
    compiled = {}
    with tempfile.TemporaryDirectory() as folder:
        ptx, cubin = f"{folder}/kernels.ptx", f"{folder}/kernels.cubin"
        _, seconds = run([nvcc, "-std=c++17", f"-I{ROOT}/include", "-Werror", "all-warnings", f"-arch=compute_{target}",
                          "-ptx", source, "-o", ptx])
        with open(ptx, encoding="utf-8") as file:
            of_ptx = parse_ptx(file.read())
        names = demangle(list(of_ptx))
        for build, translated_for in ((build[0], build[2]) for build in BUILDS if build[1] == target):
            messages, more = run([nvcc, f"-arch=sm_{translated_for}", "-cubin", "-Xptxas", "-v", ptx, "-o", cubin])
            of_ptxas = parse_ptxas(messages)
            with open(cubin, "rb") as file:
                code = elf.code_bytes(file.read())
            if not of_ptx.keys() == of_ptxas.keys() <= code.keys():  # functions that are called lie apart
                raise RuntimeError(f"{source}: ptxas reports other kernels than the PTX or the cubin has:\n{messages}")
            kernels = {names[name]: Kernel(*of_ptxas[name], code[name], *of_ptx[name]) for name in of_ptx}
            compiled[build] = kernels, seconds + more
    return compiled


def read_budgets(path):
    with open(path, encoding="utf-8") as file:
        budgets = json.load(file)
    for name, budget in budgets.items():
        missing = BUDGET_KEYS - {"stack_bytes", "targets"} - budget.keys()
        unknown = budget.keys() - BUDGET_KEYS
        if missing or unknown:
            raise RuntimeError(f"{path}: {name}: missing {sorted(missing)}, unknown {sorted(unknown)}")
    return budgets


def excesses(kernel, budget, target, translated_for):
    """Yields what of the kernel exceeds its budget or the architecture."""
    for what, got, allowed in (("registers", kernel.registers, budget["registers"]),
                               ("spilled bytes", kernel.spills, 0),
                               ("stack bytes", kernel.stack, budget.get("stack_bytes", 0)),
                               ("static shared bytes", kernel.shared, budget["static_shared_bytes"]),
                               ("threads", budget["threads"], kernel.max_threads),
                               ("static shared bytes", kernel.shared, STATIC_SHARED_LIMIT),
                               ("shared bytes", kernel.shared + budget["dynamic_shared_bytes"], LIMITS[target][3])):
        if got > allowed:
            yield f"{got} {what}, {allowed} allowed"
    if occupancy(translated_for, budget["threads"], kernel.registers,
                 kernel.shared + budget["dynamic_shared_bytes"]) == 0:
        yield "a block does not fit on a multiprocessor"


def print_table(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def report(op, budgets, compiled):
    """Prints the table of an op; returns what is wrong. `compiled` has kernels and seconds of BUILDS."""
    problems, used, rows = [], set(), {}
    builds = [build for build in BUILDS if build[0] in compiled]
    for build, target, translated_for in builds:
        for name, kernel in compiled[build][0].items():
            if name in NOT_LAUNCHED:
                continue
            matching = [key for key in budgets if fnmatch.fnmatchcase(name, key)]
            if len(matching) != 1:
                problems.append(f"{op}: {name}: {'no budget' if not matching else f'several budgets: {matching}'}")
                continue
            used.add(matching[0])
            budget = budgets[matching[0]]
            row = rows.setdefault(name, (budget, {}))
            if target not in budget.get("targets", LIMITS):
                problems.append(f"{op}: {name} on {build}: compiled where it is never launched")
                continue
            problems += [f"{op}: {name} on {build}: {what}"
                         for what in excesses(kernel, budget, target, translated_for)]
            share = occupancy(translated_for, budget["threads"], kernel.registers,
                              kernel.shared + budget["dynamic_shared_bytes"])
            row[1][build] = (f"{kernel.registers} {share:.0%} {kernel.code}B" +
                             (f" {kernel.mma}mma" if kernel.mma else ""))
    compiled_for = {target for _, target, _ in builds}
    problems += [f"{op}: {key}: a budget without a kernel" for key in budgets.keys() - used
                 if compiled_for & set(budgets[key].get("targets", LIMITS))]

    names = [build for build, _, _ in builds]
    table = [["kernel", "threads", "shared", *names]]
    for name, (budget, cells) in sorted(rows.items()):
        shared = budget["static_shared_bytes"] + budget["dynamic_shared_bytes"]
        table.append([name, str(budget["threads"]), str(shared), *(cells.get(build, "-") for build in names)])
    seconds = [f"{name} {taken:.1f}{' (too long)' if taken > COMPILE_TARGET_S else ''}"
               for name, taken in ((name, compiled[name][1]) for name in names)]
    print(f"\n{op}: processor seconds of nvcc: {', '.join(seconds)}")
    print_table(table)
    return list(dict.fromkeys(problems))


def table_of(compiled):
    """What tests/counts.json has of an op."""
    names = sorted({name for kernels, _ in compiled.values() for name in kernels} - NOT_LAUNCHED)

    def cell(kernel):
        return f"{kernel.registers} {kernel.shared} {kernel.mma} {kernel.code}" if kernel else "-"

    return [["registers, static shared bytes, tensor instructions and bytes of code of",
             *compiled],
            *([name, *(cell(kernels.get(name)) for kernels, _ in compiled.values())] for name in names)]


def of_builds(table, builds):
    """The columns of an op's table in tests/counts.json that were compiled, and the kernels that these have."""
    columns = [0, *(table[0].index(build) for build in builds)]
    rows = [[row[column] for column in columns] for row in table]
    return [rows[0], *(row for row in rows[1:] if set(row[1:]) != {"-"})]


def changes(tables, nvcc_version, update, are_all):
    """Yields what differs from tests/counts.json, or writes it there; are_all: the tables are of all ops."""
    counts = check_counts.read()
    counted = counts["kernels"]
    if update:
        if counted["nvcc"] != nvcc_version and not are_all:
            yield f"tests/counts.json was made by nvcc {counted['nvcc']}; with {nvcc_version} update all ops together"
            return
        counted["nvcc"] = nvcc_version
        counted["ops"] = dict(sorted({**({} if are_all else counted["ops"]), **tables}.items()))
        check_counts.write(counts)
    elif counted["nvcc"] != nvcc_version:
        print(f"\nNot compared with tests/counts.json: nvcc {counted['nvcc']} made that, this is {nvcc_version}.")
    else:
        found = [f"{op}: {difference}" for op, table in tables.items() for difference in check_counts.differences(
            of_builds(counted["ops"][op], table[0][1:]) if op in counted["ops"] else None, table)]
        yield from found
        if found:
            changed = " ".join(op for op in tables if any(line.startswith(f"{op}: ") for line in found))
            yield f"If this is meant: scripts/kernel_report.py --update {changed}, and say in the commit why."


def report_counts(op, folder):
    """Runs the op's tests that count, and prints their tables; returns what is wrong."""
    program = f"{folder}/ops_{op}_kernel_test_plain"
    if not os.path.exists(program):
        print(f"\n{op}: nothing is counted: {os.path.relpath(program)} is not built")
        return []
    with tempfile.TemporaryDirectory() as temporary:
        results = f"{temporary}/results.json"
        process = subprocess.run([program, "--gtest_filter=*Counts.*", f"--gtest_output=json:{results}"],
                                 env={**os.environ, "WARPRANK_COUNT_ALL": "1"}, capture_output=True, text=True,
                                 check=False)
        if process.returncode:
            return [f"{op}: {program}:\n{process.stdout}{process.stderr}"]
        with open(results, encoding="utf-8") as file:
            suites = json.load(file)["testsuites"]
    for test in (test for suite in suites for test in suite["testsuite"] if "counts" in test):
        print(f"\n{op}: counted by the executor: {test['name']}")
        print_table([line.split("\t") for line in test["counts"].split("\n")])
    return []


def kernels_without_budget(resources):
    """Yields the kernels of the library that no budget names."""
    budgeted = {re.split("[<*]", key)[0] for path in glob.glob(f"{resources}/*.json") for key in read_budgets(path)}
    not_for_nvcc = re.compile(r"^#if !defined\((?:__CUDACC__|WARPRANK_ON_CUDA)\)\n.*?^#endif", re.M | re.S)
    declaration = re.compile(r"^WARPRANK_KERNEL\((?:[^()]|\([^()]*\))*\)\s*(\w+)\(", re.M)
    for path in sorted(glob.glob(f"{ROOT}/include/**/*.*", recursive=True)):
        with open(path, encoding="utf-8") as file:
            for name in declaration.findall(not_for_nvcc.sub("", file.read())):
                if name not in budgeted and name not in NOT_LAUNCHED:
                    yield f"{os.path.relpath(path, ROOT)}: {name}: no budget in tests/resources"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", help="all, unless some are named")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--resources", default=f"{ROOT}/tests/resources", help="the folder of sources and budgets")
    parser.add_argument("--tests", metavar="FOLDER", help="where the kernel tests are: prints what they count")
    parser.add_argument("--update", action="store_true", help="write what is counted to tests/counts.json")
    parser.add_argument("--targets", nargs="+", type=int, choices=LIMITS,
                        default=[int(target) for target in os.environ.get("WARPRANK_TARGETS", "").split()] or [*LIMITS])
    parser.add_argument("--names-only", action="store_true", help="compile nothing: has every kernel a budget?")
    options = parser.parse_args()
    if unknown := set(options.targets) - LIMITS.keys():
        parser.error(f"WARPRANK_TARGETS: expected some of {[*LIMITS]}, got {sorted(unknown)}")
    if options.update and set(options.targets) != LIMITS.keys():
        parser.error("--update: expected all targets, got " + " ".join(map(str, options.targets)))

    resources = options.resources
    files = glob.glob(f"{resources}/*.cu") + glob.glob(f"{resources}/*.json")
    ops = options.ops or sorted({os.path.splitext(os.path.basename(path))[0] for path in files})
    problems = [] if options.ops else list(kernels_without_budget(resources))
    has_counts = resources == parser.get_default("resources")
    if has_counts and not options.ops and not options.update:
        problems += [f"tests/counts.json: {op}: {'not counted' if op in ops else 'is no more'}"
                     for op in sorted(set(ops) ^ check_counts.read()["kernels"]["ops"].keys())]
    if not options.names_only:
        nvcc = find_nvcc()
        if nvcc is None:
            sys.exit("nvcc is not installed: put it on PATH, or its folder in CUDA_HOME")
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            running = {op: [pool.submit(compile_kernels, nvcc, f"{resources}/{op}.cu", target)
                            for target in LIMITS if target in options.targets]
                       for op in ops}
            tables = {}
            for op, targets in running.items():
                try:
                    compiled = {build: result for target in targets for build, result in target.result().items()}
                    problems += report(op, read_budgets(f"{resources}/{op}.json"), compiled)
                    tables[op] = table_of(compiled)
                except (RuntimeError, OSError, ValueError) as error:
                    problems.append(f"{op}: {error}")
                if options.tests:
                    problems += report_counts(op, options.tests)
        if has_counts:
            problems += changes(tables, version_of(nvcc), options.update, not options.ops)
    print()
    print("\n".join(problems) if problems else "Every kernel keeps to its budget.")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
