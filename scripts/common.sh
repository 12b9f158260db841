# SPDX-License-Identifier: Apache-2.0
#
# For the other scripts to source: they run from the repository's root, whatever folder they are called in.

if [[ -n ${WARPRANK_DATA:-} ]]; then
  WARPRANK_DATA=$(realpath -- "$WARPRANK_DATA")
  export WARPRANK_DATA
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# CMake reads this one itself.
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
fi

export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(nproc)}

# What a command returns that cannot run here, as for lack of a network, and has said why.
skipped=77

# step NAME COMMAND...: runs the command, notes how it went for `summary`, and what it took in build/times/steps.tsv.
steps=() failed_steps=() failed_tests=() skipped_tests=() step_status=0
step() {
  local name=$1 begin=$SECONDS used result=ok line
  shift
  read_processor_seconds
  used=$processor_seconds
  echo "== $name"
  step_status=0
  "$@" || step_status=$?
  ((step_status == 0)) || result=FAILED
  ((step_status != skipped)) || result=skipped
  read_processor_seconds
  used=$((processor_seconds - used))
  line=$(printf '%-7s %5d s  %s' "$result" $((SECONDS - begin)) "$name")
  printf '%s\t%d\t%d\t%s\n' "$name" $((SECONDS - begin)) $used $result >>build/times/steps.tsv
  if [[ $result == FAILED ]]; then failed_steps+=("$line"); else steps+=("$line"); fi
  [[ $result != FAILED ]]
}

# Sets processor_seconds to what this shell's children that have ended took, user's and system's. A subshell has others.
read_processor_seconds() {
  mkdir -p build/times
  times >build/times/now
  processor_seconds=$(awk -F'[ms ]+' 'NR == 2 { printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }' build/times/now)
}

# Prints one line for each step, the tests that were skipped, and last what failed; fails when a step did.
summary() {
  printf '\n== %s\n' "$0"
  ((!${#steps[@]})) || printf '%s\n' "${steps[@]}"
  ((!${#skipped_tests[@]})) || printf 'skipped: %s\n' "${skipped_tests[@]}"
  ((${#failed_steps[@]})) || return 0
  printf '%s\n' "${failed_steps[@]}"
  ((!${#failed_tests[@]})) || printf '  %s\n' "${failed_tests[@]}"
  return 1
}

# expect_checks NAME...: ends where there is no check of such a name.
expect_checks() {
  local check
  for check; do
    if [[ $(type -t "check_$check") != function ]]; then
      echo "$0: expected the name of a check, got '$check'" >&2
      exit 2
    fi
  done
}
