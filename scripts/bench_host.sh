#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures the host engine: ops, models, onnxruntime and OpenVINO on the same models, latency under load and while models
# are exchanged. Prints each ratio that the library promises beside its target, and fails when one falls short or a
# program fails; what is missing is skipped, and said. At most 15 minutes on two cores behind the build; leave the
# machine alone meanwhile.
#   scripts/bench_host.sh [FOLDER]             report.md, host.json, pictures; what the programs wrote in FOLDER/raw
#   scripts/bench_host.sh --record MACHINE     and puts the record into benchmarks/results/MACHINE/, and the figures
#                                              into README.md and docs/PERFORMANCE.md
# The engines are looked for by .venv/bin/python where there is one (tools/bench_host_engines.py says what it needs).
machine=
if [[ ${1:-} == --record ]]; then
  machine=${2:?--record needs the name of a machine}
  shift 2
fi
folder=${1:+$(realpath -m -- "$1")}
source "$(dirname "$0")/common.sh"

folder=${folder:-$PWD/build/host_record}
raw=$folder/raw
rm -rf "$raw"
mkdir -p "$raw"
: >"$folder/skipped.txt"
mapfile -t benches < <(cd benchmarks && find . -name '*_bench.cpp' | sed 's|^\./||; s|\.cpp$||; s|/|_|g' | sort)
pkg-config --exists grpc++ || mapfile -t benches < <(printf '%s\n' "${benches[@]}" | grep -v '^server_')
python=python3
[[ -x .venv/bin/python ]] && python=.venv/bin/python

# For each number of contexts: fixed rates, from idle to more than a core can do.
latency_rates=(100 200 400 800 1600 3200) latency_seconds=4

skip() {
  echo "skipped: $1"
  echo "$1" >>"$folder/skipped.txt"
}

# left SECONDS: what there is left of them for the part that begins now, once the whole must end.
left() {
  local rest=$((deadline - SECONDS))
  echo $((rest < $1 ? rest : $1))
}

# within SECONDS WHAT COMMAND...: skips what there is no time for, and what takes longer.
within() {
  local seconds code=0 what=$2
  seconds=$(left "$1")
  shift 2
  if ((seconds < 5)); then
    skip "$what: no time left"
    return
  fi
  timeout "$seconds" "$@" >&2 || code=$?
  if ((code == 124)); then
    skip "$what: cut off after $seconds s"
  elif ((code != 0)); then
    echo "$what failed ($code)" >&2
    return 1
  fi
}

# Five minutes are left for what comes after them. Each gets twice its share, since most take less.
measure_benches() {
  local bench failed=0 remaining=${#benches[@]} seconds
  for bench in "${benches[@]}"; do
    seconds=$((2 * (deadline - 300 - SECONDS) / remaining--))
    within $seconds "$bench" build/cpu/benchmarks/"$bench" --benchmark_out="$raw/$bench.json" \
      --benchmark_out_format=json || failed=1
  done
  return $failed
}

measure_engines() {
  if ! $python -c 'import numpy' 2>/dev/null; then
    skip "engines: onnxruntime and OpenVINO need numpy, which Python has not"
    return
  fi
  within 300 engines $python tools/bench_host_engines.py build/cpu/benchmarks/models_run_model \
    --out "$raw/engines.json"
}

measure_latency() {
  local contexts failed=0
  for ((contexts = 1; contexts <= $(nproc) && contexts <= 8; contexts *= 2)); do
    within 120 "latency with $contexts contexts" build/cpu/examples/embed_in_service --contexts $contexts \
      --rates "${latency_rates[@]}" --seconds $latency_seconds --csv "$raw/latency_host_$contexts.csv" || failed=1
  done
  return $failed
}

measure_swaps() {
  within 300 swaps $python tools/bench_swaps.py build/cpu/examples/embed_in_service --out "$raw/swaps.json"
}

command="scripts/bench_host.sh"
record() {
  tools/records.py "$raw" --out "$folder/host.json" --command "$command" --skipped "$folder/skipped.txt" &&
    tools/performance.py --report "$folder/host.json" &&
    if [[ -n $machine ]]; then tools/performance.py --add "$machine" "$folder/host.json"; fi
}

targets=("${benches[@]}" embed_in_service)
[[ -f benchmarks/models/run_model.cpp ]] && targets+=(models_run_model)
step "packages" scripts/install_deps.sh test &&
  step "configure" cmake --preset cpu &&
  step "build" cmake --build --preset cpu --target "${targets[@]}" &&
  deadline=$((SECONDS + 14 * 60)) && {
    step "benchmarks" measure_benches
    step "other engines" measure_engines
    step "latency" measure_latency
    step "latency while models are exchanged" measure_swaps
    step "record" record
    step "targets" scripts/check_ratios.py "$folder/host.json"
  }
echo "$folder/report.md"
summary
