#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles every public header alone and without warnings, and all of them in one unit, kernels last and kernels first: a
# name that two of them have shows in one of the orders.
#   check_headers.sh INCLUDE_DIR COMPILER STANDARD [together]    the last: not each alone, which takes minutes
# A -inl.h is re-included once for each SIMD target by the header beside it and is checked with that. A .cuh is plain C++
# here, in the words of the executor of kernels, but for those that have CUDA's.
set -euo pipefail
cd "$1"
compiler=$2 standard=$3

check() {
  local header=$1 messages
  shift
  if ! messages=$("$@" -x c++ - <<<"#include <$header>" 2>&1); then
    printf '%s does not compile alone:\n%s\n' "$header" "$(head -20 <<<"$messages")"
    return 1
  fi
}
export -f check

together() {
  local messages
  if ! messages=$(printf '#include <%s>\n' "$@" | "${compile[@]}" -x c++ - 2>&1); then
    printf 'the headers do not compile together, from %s on:\n%s\n' "$1" "$(head -20 <<<"$messages")"
    return 1
  fi
}

without=none
echo '#include <hiredis/hiredis.h>' | "$compiler" -x c++ -fsyntax-only - 2>/dev/null || without='warprank/store/redis*'
mapfile -t headers < <(find warprank \( -name '*.hpp' -o -name '*.cuh' \) ! -path "warprank/device/cuda*" \
                         ! -path "$without" | sort)
echo "${#headers[@]} headers, $compiler, $standard"
compile=("$compiler" "-std=$standard" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I.)
[[ ${4:-} == together ]] ||
  printf '%s\0' "${headers[@]}" | xargs -0 -P "$(nproc)" -I{} bash -c 'check "$@"' check {} "${compile[@]}"
mapfile -t plain < <(printf '%s\n' "${headers[@]}" | grep 'hpp$')
mapfile -t kernels < <(printf '%s\n' "${headers[@]}" | grep 'cuh$')
together "${plain[@]}" "${kernels[@]}"
together "${kernels[@]}" "${plain[@]}"
