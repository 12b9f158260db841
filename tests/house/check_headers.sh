#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles every public header alone and without warnings:
#   check_headers.sh INCLUDE_DIR COMPILER STANDARD
# A -inl.h is re-included once for each SIMD target by the header beside it and is checked with that. A .cuh is plain C++
# here, in the words of the executor of kernels, but for the one that has CUDA's.
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

mapfile -t headers < <(find warprank \( -name '*.hpp' -o -name '*.cuh' \) ! -name cuda_backend.cuh | sort)
echo "${#headers[@]} headers, $compiler, $standard"
printf '%s\0' "${headers[@]}" | xargs -0 -P "$(nproc)" -I{} bash -c 'check "$@"' check {} \
  "$compiler" "-std=$standard" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I.
