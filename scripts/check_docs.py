#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the documents tell the truth: every path, link and include they name exists, every command works, and
C++ stands in a source file that is compiled.

Without options, commands are only checked against RUN_ELSEWHERE; with --run the others are run, from the repository's
root, in the order of the documents.
"""

import argparse
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

DOCUMENTS = ("*.md", "docs/**/*.md", "examples/**/*.md", "benchmarks/**/*.md", "tools/**/*.md", "python/**/*.md")

# Commands that are too long, or need too much, to be run from here: what runs them, by a text that it contains.
RUN_ELSEWHERE = [
    # command (a regular expression), file, text in that file
    (r"scripts/test\.sh", ".ci/run", "test wide"),
    (r"scripts/demo\.sh( --user \d+)?( --data \S+)?", ".ci/run", "scripts/demo.sh"),
    (r"\.ci/run( \w+)*|scripts/check_all\.sh( \w+)*", "scripts/check_all.sh", "source scripts/checks.sh"),
    (r"scripts/check_changed\.sh( \S+)?", "tests/scripts/changed_checks_test.py", "check_changed.sh"),
    (r"scripts/stress_tests\.sh( .*)?", "scripts/checks.sh", "scripts/stress_tests.sh"),
    (r"scripts/test_times\.py --.*", "tests/scripts/test_times_test.py", "test_times"),
    (r"scripts/bench_host\.sh( --record \S+)?", "scripts/checks.sh", "scripts/bench_host.sh"),
    (r"ctest --preset cpu -R '\^counts\$'", "tests/CMakeLists.txt", "NAME counts"),
    (r"scripts/check_counts\.py build/cpu/tests/counts( --update)?", "tests/CMakeLists.txt", "check_counts.py"),
    (r"tools/performance\.py( --check)?", "tests/CMakeLists.txt", "performance.py --check"),
    (r"tools/performance\.py --add .*", "tests/scripts/record_check_test.py", 'run_tool("--add"'),
    (r"scripts/kernel_report\.(sh|py --update)( \w+)?", "tests/resources/CMakeLists.txt", "scripts/kernel_report.py"),
    (r"cmake --preset (cpu|asan|t4-cuda12)", "scripts/checks.sh", "cmake --preset"),
    (r"cmake --build --preset (cpu|asan)", "scripts/checks.sh", "cmake --build --preset"),
    (r"cmake --build --preset cpu --target ops_fm_kernel_test_plain .*|build/cpu/tests/ops_fm_kernel_test_.*",
     "scripts/checks.sh", "run_tests cpu -R '_asan$'"),
    (r"ctest --preset (cpu|asan)( -L simt)?", "scripts/checks.sh", "ctest --preset"),
    (r"(\S+ )*build/tutorial\b.*", "scripts/checks.sh", "scripts/check_tutorial.py"),
    (r"pip install \.", "tests/python/run.py", '"wheel"'),
    (r"pip install \. -C cmake\.define\.WARPRANK_CUDA=ON .*", "tests/python/run.py", "cmake.define.WARPRANK_CUDA=ON"),
    (r"scripts/serve\.sh --keep-users .*", "tests/client/server_client_test.py", '"--keep-users", "item"'),
    (r"build/client/bin/python tools/client/rank\.py --user-state \S+", "tests/client/server_client_test.py",
     '"--user-state"'),
    (r"scripts/check_perf_analyzer\.py .*", "scripts/checks.sh", "scripts/check_perf_analyzer.py"),
    (r"tools/plan_cache\.py .*", "tests/scripts/plan_cache_test.py", '"--svg"'),
    (r"build/cpu/tools/load_redis .*", "tests/tools/load_redis_redis_test.cpp", '"--state"'),
    (r"ctest --preset cpu -R '\^python\$'", "tests/CMakeLists.txt", "NAME python"),
    (r"warprank convert .*", "tests/python/torch/test_convert.py", '"convert"'),
    (r"warprank (check|score) .*", "tests/python/core/test_cli.py", 'run("score"'),
    (r"scripts/fetch_debian11\.sh build/debian11", "scripts/checks.sh", "scripts/fetch_debian11.sh"),
    (r"scripts/fetch_nvdisasm\.sh \S+", "scripts/checks.sh", "scripts/fetch_nvdisasm.sh"),
    (r"cmake --preset t4-software|cmake --build --preset t4-software .*", "scripts/checks.sh", "build t4-software"),
    (r"ctest --preset t4-software .*|tools/t4/run build/t4-software/.*", "scripts/checks.sh", "run_tests t4-software"),
    (r"scripts/check_cycles\.py \S+( --update)?", "tests/gpu/CMakeLists.txt", "check_cycles.py"),
    (r"tools/records\.py \S+ --out \S+ --command .* --simulated \S+", "tests/scripts/record_check_test.py",
     "simulated_machine"),
    (r"T4_TIME=1 T4_PROFILE=\d+ tools/t4/run PROGRAM", "tests/t4/run_test.py", "T4_PROFILE="),
    (r"\(cd build && mkdir -p model && echo 1 1 \| T4_TIME=1 .*", "scripts/check_cycles.py", '"T4_REPORT": report'),
    (r"tools/plot_timeline\.py \S+ --out \S+", "tests/scripts/t4_scripts_test.py", "tools/plot_timeline.py"),
    (r"scripts/fetch_cuda\.sh \S+", "scripts/checks.sh", "scripts/fetch_cuda.sh"),
    (r"mkdir -p build && nvcc -std=c\+\+17 -I include examples/primitives/\S+ -o \S+", "examples/CMakeLists.txt", "primitives/*.cu"),
    (r"scripts/package\.sh \S+", "scripts/check_packages.sh", "scripts/package.sh"),
    (r"scripts/package_benchmarks\.sh \S+( --debian11 \S+)?", "scripts/checks.sh", "scripts/package_benchmarks.sh"),
]

# What needs a GPU or a network, and is run where there is one, what serves until it is stopped, and what takes minutes: the
# package with CUDA, the model of a card beside records.
RUN_BY_HAND = (r"scripts/serve\.sh|python3 -m venv build/client .*|build/client/bin/python .*|curl .*|"
               r"scripts/gpu_check\.sh \S+( --quick| --minutes \d+)?|scripts/fetch_deps\.sh|"
               r"build/native/examples/tune_linears .*|tests/python/run\.py \S+ --cuda|"
               r"scripts/check_t4_model\.py")

LONGEST = 180  # seconds that a command may take here

# Folders whose files documents name from the root, or as #include does.
FROM_ROOT = ("include", "src", "tests", "benchmarks", "examples", "tools", "cmake", "docs", "scripts", "python",
             ".ci")
FROM_INCLUDE = ("core", "model", "plan", "batch", "engine", "weights", "ops", "device", "store")


def blocks(text):
    """Yields (language, line number, body) of every fenced block at the margin; those within lists are sketches."""
    for match in re.finditer(r"^```(\w*)[^\n]*\n(.*?)^```", text, re.M | re.S):
        yield match[1], text.count("\n", 0, match.start()) + 2, match[2]


def commands(body):
    """Yields (line offset, command) of a shell block: comments and prompts off, continued lines joined."""
    offset, parts = 0, []
    for number, line in enumerate(body.splitlines()):
        line = re.sub(r"(^|\s)#.*", "", line).strip()
        line = line[2:] if line.startswith("$ ") else line
        if not parts:
            offset = number
        parts.append(line.removesuffix("\\").strip())
        if line.endswith("\\"):
            continue
        if command := " ".join(parts).strip():
            yield offset, command
        parts = []


def path_exists(path, document):
    """Whether a path as documents write it exists: `<op>` and `*` stand for any name, `{a,b}` for each."""
    if braces := re.search(r"\{([^}]*)\}", path):
        return all(path_exists(path.replace(braces[0], choice, 1), document) for choice in braces[1].split(","))
    pattern = re.sub(r"<\w+>", "*", path.rstrip("/"))
    places = [ROOT]
    if path.split("/")[0] not in FROM_ROOT:
        places += [f"{ROOT}/include/warprank", os.path.join(ROOT, os.path.dirname(document))]
    return any(glob.glob(os.path.join(place, pattern)) for place in places)


def named_paths(text):
    """Yields (line number, path) of every path in inline code or in a block that is not shell."""
    starts = "|".join(re.escape(name) for name in FROM_ROOT + FROM_INCLUDE)
    path = re.compile(rf"(?<![\w/.<-])(?:{starts})/[\w.<>*{{}},/-]*[\w>*}}/]")
    for number, line in enumerate(text.splitlines(), 1):
        code = re.findall(r"`([^`]+)`", line) if "`" in line else [line] if line.startswith("    ") else []
        for piece in code:
            for match in path.finditer(piece):
                yield number, match[0]


def is_compiled(code):
    """Whether code stands, but for its indentation, in a source file that the build compiles."""
    wanted = [line.strip() for line in code.strip().splitlines()]
    sources = [f"{ROOT}/{folder}/**/*.{ending}" for folder in ("examples", "tests", "benchmarks", "include")
               for ending in ("cpp", "hpp", "cu", "cuh")]
    for source in [path for pattern in sources for path in glob.glob(pattern, recursive=True)]:
        with open(source, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
        if any(lines[i : i + len(wanted)] == wanted for i in range(len(lines))):
            return True
    return False


def check_document(name, complain):
    """Complains of what is named and does not exist; returns the commands as (place, command)."""
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        text = file.read()
    for number, path in named_paths(text):
        if not path_exists(path, name):
            complain(f"{name}:{number}: {path} does not exist")
    for number, line in enumerate(text.splitlines(), 1):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", line):
            beside = os.path.join(ROOT, os.path.dirname(name), target)
            if "://" not in target and not os.path.exists(beside):
                complain(f"{name}:{number}: the link {target} leads nowhere")
        for header in re.findall(r"#include <(warprank/[^>]+)>", line):
            if not os.path.exists(f"{ROOT}/include/{header}"):
                complain(f"{name}:{number}: there is no header {header}")
    for language, number, body in blocks(text):
        if language == "cpp" and not is_compiled(body):
            complain(f"{name}:{number}: this code does not stand in any source file")
    return [
        (f"{name}:{number + offset}", command)
        for language, number, body in blocks(text)
        if language in ("sh", "bash", "shell", "console")
        for offset, command in commands(body)
    ]


def check_command(place, command, run, complain):
    for pattern, by, evidence in RUN_ELSEWHERE:
        if re.fullmatch(pattern, command):
            with open(os.path.join(ROOT, by), encoding="utf-8") as file:
                if evidence not in file.read():
                    complain(f"{place}: {command}: should be run by {by}, which does not mention {evidence}")
            return
    program = command.split()[0]
    if "/" in program and not program.startswith("build/") and not os.access(os.path.join(ROOT, program), os.X_OK):
        complain(f"{place}: {command}: {program} is not an executable file")
    elif run and not re.fullmatch(RUN_BY_HAND, command):
        print(f"{place}: {command}", flush=True)
        # timeout ends what the command started, too.
        result = subprocess.run(["timeout", "-k", "5", str(LONGEST), "bash", "-c", command], cwd=ROOT, text=True,
                                capture_output=True)
        if result.returncode == 124:
            complain(f"{place}: {command}: not done within {LONGEST} s; what takes longer is to be run elsewhere")
            return
        if result.returncode != 0:
            complain(f"{place}: {command}: exit status {result.returncode}\n{(result.stdout + result.stderr)[-2000:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="run the commands that nothing else runs")
    run = parser.parse_args().run

    complaints = []
    documents = [name for pattern in DOCUMENTS for name in sorted(glob.glob(pattern, root_dir=ROOT, recursive=True))]
    found = [item for name in documents for item in check_document(name, complaints.append)]
    for place, command in found:
        check_command(place, command, run, complaints.append)
    print(f"{len(documents)} documents, {len(found)} commands, {len(complaints)} complaints")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
