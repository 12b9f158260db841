#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds and runs the tests, on a fresh Debian or Ubuntu machine too: installs what is missing first. What takes longer is
# run by .ci/run: the build of kernels that finds races, and the tests with the labels wide (all headers by themselves,
# servers, projects of users, the Python package) and resources (what kernels take of a GPU).
#   scripts/test.sh [ctest option...]      for example -R linear
# Tests on real data run when WARPRANK_DATA names a folder with MovieLens 100K.
source "$(dirname "$0")/common.sh"
source scripts/checks.sh

check=test
step "packages" scripts/install_deps.sh test &&
  step "configure" cmake --preset cpu "${only_plain[@]}" &&
  step "build" cmake --build --preset cpu --target quick_tests &&
  step "tests" run_tests cpu -LE 'wide|resources' "$@"
summary
