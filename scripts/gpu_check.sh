#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything that needs a GPU, in one go and without a network: builds the kernel tests for the card that is there and as
# PTX for compute_75, which runs the T4's code on any card; runs both; runs the first under compute-sanitizer.
#   scripts/gpu_check.sh OUTDIR [--quick]     --quick: without compute-sanitizer
# OUTDIR gets report.md (card, driver, CUDA, commit, and how each step went) and logs. Libraries that are not installed
# are taken from .deps/ (scripts/fetch_deps.sh). Where there is no card it builds what it can, says what it could not
# run, and fails.
#
# WARPRANK_COMMIT  what the report calls the commit, where this is not a git repository
set -euo pipefail
if (($# < 1 || $# > 2)) || [[ $# == 2 && $2 != --quick ]]; then
  echo "usage: $0 OUTDIR [--quick]" >&2
  exit 2
fi
mkdir -p "$1"
out=$(realpath -- "$1") quick=${2:-}
source "$(dirname "$0")/common.sh"

PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:$PWD/.deps/usr/bin
for tool in cmake c++ nvcc; do
  if ! command -v $tool >/dev/null; then
    echo "$0: $tool is not installed" >&2
    exit 1
  fi
done

card=$(nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total --format=csv,noheader 2>/dev/null |
  head -1 || true)
capability=$(cut -d, -f2 <<<"$card" | tr -d ' .')
commit=$(git describe --always --dirty 2>/dev/null || echo "${WARPRANK_COMMIT:-unknown}")
report=$out/report.md
for log in build tests sanitizer; do
  : >"$out/$log.log"
done
{
  echo "# GPU check"
  echo
  echo "| | |"
  echo "|---|---|"
  echo "| card, compute capability, driver, memory | ${card:-none} |"
  echo "| CUDA | $(nvcc --version | sed -n 's/^Cuda compilation tools, //p') |"
  echo "| compiler | $(c++ --version | head -1) |"
  echo "| commit | $commit |"
  echo "| date | $(date -u +%Y-%m-%dT%H:%MZ) |"
  echo
  echo "| Build | Step | Result | Tests | Seconds |"
  echo "|---|---|---|---|---|"
} >"$report"

num_failed=0 num_not_run=0
# row BUILD STEP RESULT TESTS SECONDS
row() {
  echo "| $1 | $2 | $3 | $4 | $5 |" | tee -a "$report"
  case $3 in
    FAILED*) num_failed=$((num_failed + 1)) ;;
    "not run"*) num_not_run=$((num_not_run + ${4:-1})) ;;
  esac
}

# build NAME ARCHITECTURES: the kernel tests, in build/gpu-NAME
build() {
  local name=$1 begin=$SECONDS result=ok
  local options=(-S . -B "build/gpu-$name" -D CMAKE_BUILD_TYPE=Release -D WARPRANK_CUDA=ON
                 -D CMAKE_CUDA_ARCHITECTURES="$2" -D WARPRANK_BUILD_BENCHMARKS=OFF -D WARPRANK_BUILD_EXAMPLES=OFF)
  [[ -d .deps/usr ]] && options+=(-D CMAKE_PREFIX_PATH="$PWD/.deps/usr")
  command -v ninja >/dev/null && options+=(-G Ninja)
  { cmake "${options[@]}" && cmake --build "build/gpu-$name" --parallel --target gpu_tests; } >>"$out/build.log" 2>&1 ||
    result="FAILED: build.log"
  row "$name" "build for $2" "$result" "" $((SECONDS - begin))
  [[ $result == ok ]]
}

# run_tests BUILD STEP LOG COMMAND...: each test program, behind the command
run_tests() {
  local name=$1 step=$2 log=$3 program begin code result tests output
  shift 3
  output=$(mktemp)
  for program in "build/gpu-$name"/tests/gpu/*_gpu; do
    begin=$SECONDS code=0
    timeout 600 "$@" "$program" >"$output" 2>&1 || code=$?
    { echo "==== $name: $* $program"; cat "$output"; } >>"$out/$log"
    # What ran and passed; what there was, when nothing ran.
    tests=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p; s/^SKIPPED \([0-9]*\) tests.*/\1/p' "$output" | head -1)
    result=ok
    if ((code == 77)); then
      result="not run: no GPU"
    elif ((code != 0)); then
      result="FAILED ($code): $log"
    fi
    row "$name" "$step$(basename "$program")" "$result" "$tests" $((SECONDS - begin))
  done
  rm -f "$output"
}

# Whether compute-sanitizer works on this machine at all.
sanitizer_works() {
  command -v compute-sanitizer >/dev/null &&
    compute-sanitizer --error-exitcode 1 "build/gpu-$1/tests/gpu/support_kernel_testing_kernel_test_gpu" \
      --gtest_filter='*GraphIsCaptured*' >>"$out/sanitizer.log" 2>&1
}

if [[ -n $capability ]]; then
  build card "$capability-real" && run_tests card "" tests.log
fi
build t4 75-virtual && run_tests t4 "" tests.log
if [[ -n $capability && $quick != --quick && -d build/gpu-card ]]; then
  if sanitizer_works card; then
    for tool in memcheck racecheck synccheck; do
      run_tests card "$tool: " sanitizer.log compute-sanitizer --tool $tool --error-exitcode 1
    done
  else
    row card "compute-sanitizer" "not permitted or not installed: sanitizer.log" "" ""
  fi
fi

{
  echo
  if [[ -z $capability ]]; then
    echo "There is no GPU: $num_not_run tests for the T4's code were built and not run, those for a card were not built."
  fi
  echo "$num_failed steps failed, $num_not_run tests were not run."
} | tee -a "$report"
echo "$report"
((num_failed == 0 && num_not_run == 0)) && [[ -n $capability ]]
