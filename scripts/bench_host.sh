#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures the host engine, prints each ratio that the library promises beside its target, and fails when one falls
# short. Ratios are taken within one run of one benchmark, on one thread; leave the machine alone meanwhile.
#   scripts/bench_host.sh [FOLDER]    also writes the raw JSON of Google Benchmark to FOLDER
folder=${1:+$(realpath -m -- "$1")}
source "$(dirname "$0")/common.sh"

benches=(ops_linear_bench ops_embedding_bag_bench ops_hash_table_bench ops_din_attention_bench models_plan_bench)
folder=${folder:-$(mktemp -d)}
mkdir -p "$folder"

run() {
  local bench
  for bench in "${benches[@]}"; do
    build/cpu/benchmarks/"$bench" --benchmark_out="$folder/$bench.json" --benchmark_out_format=json >&2 || return 1
  done
}

step "packages" scripts/install_deps.sh test &&
  step "configure" cmake --preset cpu &&
  step "build" cmake --build --preset cpu --target "${benches[@]}" &&
  step "measure" run &&
  step "targets" scripts/check_ratios.py "$folder"
summary
