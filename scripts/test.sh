#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds everything but the benchmarks and runs the tests, on a fresh Debian or Ubuntu machine too: installs what is
# missing first. What takes longer is run by .ci/run: the builds of kernels that find races and bad addresses, all headers
# by themselves, the Python package, what kernels take of a GPU (labels wide and resources).
#   scripts/test.sh [ctest option...]      for example -R linear
# Tests on real data run when WARPRANK_DATA names a folder with MovieLens 100K.
source "$(dirname "$0")/common.sh"

step "packages" scripts/install_deps.sh test &&
  step "configure" cmake --preset cpu -D WARPRANK_KERNEL_RACE=OFF -D WARPRANK_KERNEL_ASAN=OFF \
    -D WARPRANK_BUILD_BENCHMARKS=OFF &&
  step "build" cmake --build --preset cpu &&
  step "tests" ctest --preset cpu -LE 'wide|resources' "$@"
summary
