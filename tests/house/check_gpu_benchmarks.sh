#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles the benchmarks for a GPU that use the insides of ops (detail), without code, as for the executor of kernels:
# what changes the insides is to see it. check_all.sh builds and runs all of them.
#   check_gpu_benchmarks.sh SOURCE_DIR COMPILER
set -euo pipefail
cd "$1"
compile=("$2" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -x c++ -Iinclude -Ibenchmarks -Itests -Iexamples
         -Iexamples/models)
if ! echo '#include <benchmark/benchmark.h>' | "${compile[@]}" - 2>/dev/null; then
  echo "Google Benchmark is not installed: no benchmark is compiled"
  exit 77
fi
mapfile -t sources < <(find benchmarks -name '*_bench.cu' -exec grep -l 'detail::' {} + | sort)
echo "${#sources[@]} benchmarks, $2"
printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -n 1 "${compile[@]}"
