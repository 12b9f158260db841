#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which of scripts/check_all.sh's checks a change can concern, by the paths of what it changes.

    scripts/changed_checks.py [COMMIT]    since where HEAD left COMMIT, by default main, with what is not committed

Prints their names in a line. A rule that is wrong costs time where it names too much, and a fault found late where it
names too little: a path that no rule knows concerns everything.
"""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# In the order in which they are run: what is quick to fail comes first.
CHECKS = ("format test wide headers asan race nvcc resources docs site demo asan_all resources_all clang seeds "
          "benchmarks cuda t4 cuda12 redis stress fuzz soak packages torch tensorflow perf_analyzer tutorial "
          "bundle bench").split()

ON_EVERY_CHANGE = "format test wide resources demo race asan nvcc docs site"  # .ci/run

# What C++ of every kind concerns, and headers.
CODE = "format test clang"
HEADER = f"{CODE} wide headers"
KERNELS = "race nvcc resources resources_all asan_all benchmarks cuda t4 cuda12"

# (regular expression of paths, checks): the first that fits. What stands further down is used by what stands above it.
RULES = [
    # Text
    (r"(README|CONTRIBUTING)\.md|docs/(?!TUTORIAL).*|.*/README\.md|tools/site/.*", "docs site"),
    (r"docs/TUTORIAL\.md|examples/tutorial/.*", "docs site tutorial test"),
    (r"CHANGELOG\.md|LICENSE|\.gitignore", "site docs"),
    (r"benchmarks/results/.*", "test docs"),
    (r"\.clang-format", "format"),

    # How everything is built and checked
    (r"CMakeLists\.txt|CMakePresets\.json|cmake/(warprankConfig.*|install\.cmake|.*\.pc\.in)",
     f"{ON_EVERY_CHANGE} asan_all clang benchmarks cuda cuda12 fuzz packages"),
    (r"(tests|examples|tools)/CMakeLists\.txt", f"{ON_EVERY_CHANGE} asan_all clang cuda fuzz"),
    (r"cmake/debian\.cmake|packaging/.*|tests/packages/.*|scripts/(package|check_packages)\.sh", "packages test"),
    (r"cmake/(fuzz|time_limits)\.cmake|tests/seconds\.json|tests/replay_main\.cpp", "test wide asan fuzz"),
    (r"\.ci/.*|scripts/(checks|common|install_deps|test|check_all)\.sh", ON_EVERY_CHANGE),
    (r"scripts/demo\.sh", "demo"),
    (r"scripts/stress_tests\.sh", "stress"),
    (r"scripts/serve\.sh", "tutorial"),
    (r"scripts/(build_site|format)\.sh", "site format"),
    (r"scripts/bench_host\.sh|scripts/check_ratios\.py", "bench"),
    (r"scripts/check_(docs|tutorial)\.py", "docs tutorial test"),
    (r"scripts/check_perf_analyzer\.py|tests/client/flat/.*", "perf_analyzer test"),
    (r"scripts/(check_(cycles|models|t4_model)\.py|compare_prototypes\.py|fetch_nvdisasm\.sh)", "test nvcc t4"),
    (r"scripts/(kernel_report.*|elf\.py|check_counts\.py)", "test resources resources_all"),
    (r"scripts/(fetch_\w+|package_benchmarks|gpu_check)\.sh|cmake/glibc_2_31\.c|"
     r"scripts/(run_bundle|gpu_\w+|time_plan|package_benchmarks)\.py", "test bundle wide"),
    (r"scripts/.*\.(py|sh)|tests/scripts/.*", "test wide"),

    # The Python package, and tools in Python
    (r"python/warprank/(torch|onnx|convert).*|tests/python/(torch|onnx)/.*", "wide torch"),
    (r"python/warprank/keras.*|tests/python/keras/.*|tools/(bench_keras|zoo_deepctr)\.py", "wide tensorflow"),
    (r"tools/zoo\w*\.py", "wide torch"),
    (r"python/.*|pyproject\.toml|tests/python/.*", "wide torch tensorflow"),
    (r"tests/client/.*|tools/client/.*", "wide soak test perf_analyzer"),
    (r"tools/golden/.*|tools/requirements\.txt", "test"),
    (r"tools/bench_swaps\.py", "test bench docs"),
    (r"tools/.*\.py", "test wide docs"),
    (r"tools/cache_hits/.*", f"{CODE} docs"),

    # Rows in stores
    (r"include/warprank/store/.*|cmake/(hiredis|companions)\.cmake",
     f"{HEADER} asan asan_all redis stress"),
    (r"tests/(store|tools)/.*|tools/load_redis/.*|tests/support/(redis_servers|memory_store|store_testing)\.hpp",
     f"{CODE} wide asan redis stress"),

    # Serving, the server and its clients
    (r"include/warprank/serving.*", f"{HEADER} asan soak stress"),
    (r"tests/serving/.*|examples/(server|rank_client)/.*|tests/examples/(server|rank_client).*|cmake/server\.cmake",
     f"{CODE} wide asan soak stress fuzz perf_analyzer"),

    # Ops of the host
    (r"include/warprank/ops/host/.*", f"{HEADER} asan_all seeds bench"),
    (r"tests/ops/host/.*", f"{CODE} asan_all seeds"),

    # Kernels, and the engine that launches them
    (r"include/warprank/(device/|cuda|engine/cuda|ops/).*|src/cuda_engine/.*|cmake/host_calls\.cmake",
     f"{HEADER} {KERNELS}"),
    (r"tools/t4/.*|tests/t4/.*|tests/(cycles|t4_\w+)\.json", "format test wide clang nvcc docs t4"),
    (r"tests/gpu/.*|tests/house/(cuda_consumer/.*|nvcc\.cu)", "format nvcc cuda cuda12"),
    (r"tests/(resources/.*|counts\.json)", "format test resources resources_all"),
    (r"tests/simt/.*|tests/(ops|device)/.*|tests/.*_kernel_test.*|"
     r"tests/support/(kernel|policy|longest|counts|capacity).*",
     f"{CODE} wide race asan_all cuda cuda12 benchmarks"),
    (r"benchmarks/.*\.cu|benchmarks/.*\.cuh", "format benchmarks cuda cuda12"),
    (r"benchmarks/.*", "format benchmarks clang bench docs"),

    # The engine, plans, models, batches, weights, tables and ids, which all of the above is made of
    (r"include/warprank/engine/.*|src/host/.*",
     f"{HEADER} asan asan_all race nvcc cuda benchmarks seeds stress soak"),
    (r"include/warprank/(plan|model).*", f"{HEADER} asan asan_all race nvcc cuda benchmarks seeds fuzz"),
    (r"include/warprank/(batch|weights|hash_table|ids|graph_json|narrow_inputs).*",
     f"{HEADER} {KERNELS} asan seeds fuzz soak"),
    (r"include/.*", f"{HEADER} {KERNELS} asan seeds fuzz soak stress redis packages"),
    (r"tests/engine/.*|tests/(core|support)/.*|tests/.*testing\.hpp", f"{CODE} asan asan_all race cuda stress seeds"),
    (r"tests/(batch|weights|hash_table|ids|model)/.*", f"{CODE} asan race cuda fuzz"),
    (r"tests/(plan|golden|reference)/.*", f"{CODE} asan_all race seeds"),
    (r"tests/house/.*", "format wide headers packages"),
    (r"examples/models/.*", f"{CODE} asan_all benchmarks cuda seeds"),
    (r"examples/(embed_in_service|feed_pages|movielens|tiers|tune_linears)/.*|tests/examples/.*",
     f"{CODE} asan demo cuda docs stress"),
    (r"examples/.*", f"{CODE} docs packages"),
    (r"tests/guarded\.hpp", f"{CODE} asan asan_all"),
]


def checks_of(paths):
    """The names, in the order in which they are run."""
    wanted = set()
    for path in paths:
        fitting = next((checks for pattern, checks in RULES if re.fullmatch(pattern, path)), " ".join(CHECKS))
        wanted.update(fitting.split())
    return [check for check in CHECKS if check in wanted]


def git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{sys.argv[0]}: git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def changed_paths(commit):
    """Also those that are gone, and those that git does not know yet."""
    base = git("merge-base", commit, "HEAD").strip()
    listed = git("diff", "--name-only", "--no-renames", "-z", base) + git("ls-files", "-z", "--others",
                                                                         "--exclude-standard")
    return sorted(set(filter(None, listed.split("\0"))))


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    print(*checks_of(changed_paths(sys.argv[1] if len(sys.argv) == 2 else "main")))


if __name__ == "__main__":
    main()
