#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests that have threads, sockets, servers or clocks (CTest's label `threads`) 20 times each, beside loops
# that keep every core busy: as they are built for .ci/run, and with the sanitizers of addresses and of threads. What fails
# once has failed.
#   scripts/stress_tests.sh [--turns N] [--presets "cpu asan tsan"] [ctest option...]
source "$(dirname "$0")/common.sh"
source scripts/checks.sh

turns=20 presets="cpu asan tsan"
while (($#)); do
  case $1 in
    --turns | --presets)
      if (($# < 2)); then
        echo "$0: $1: expected a value, got none" >&2
        exit 2
      fi
      declare "${1#--}=$2"
      shift 2
      ;;
    *) break ;;
  esac
done
if ! [[ $turns =~ ^[1-9][0-9]*$ ]]; then
  echo "$0: --turns: expected a number of 1 or more, got '$turns'" >&2
  exit 2
fi

busy=()
trap '((!${#busy[@]})) || kill "${busy[@]}" 2>/dev/null' EXIT

# stress PRESET NICE [ctest option...]: beside loops of this nice value.
stress() {
  local preset=$1 nice=$2 result=0
  shift 2
  build "$preset" --target thread_tests || return $?
  for ((i = 0; i < $(nproc); ++i)); do
    nice -n "$nice" bash -c 'while :; do :; done' &
    busy+=($!)
  done
  # Several at once for each core: the tests wait more than they compute.
  run_tests "$preset" -C Stress -L threads -j $((4 * $(nproc))) --repeat "until-fail:$turns" "$@" || result=$?
  kill "${busy[@]}"
  wait "${busy[@]}" 2>/dev/null
  busy=()
  return $result
}

# By name alone some of the tests may be meant.
(($# == 0)) || set -- --no-tests=ignore "$@"
check=stress
step "packages" scripts/install_deps.sh check || { summary; exit 1; }
for preset in $presets; do
  # What Python scripts do is compiled by no sanitizer. gRPC's libraries are not compiled with that of threads, which
  # then takes what they order for races.
  case $preset in
    tsan) only=(-E '^scripts_|grpc') ;;
    asan) only=(-E '^scripts_') ;;
    *) only=() ;;
  esac
  step "$preset, $turns times" stress "$preset" 0 -LE loads "${only[@]}" "$@" || true
  # Models are loaded by a thread of idle priority, which hardly runs beside loops of the ordinary one.
  step "$preset, models that load, $turns times" stress "$preset" 19 -L loads "$@" || true
done
summary
