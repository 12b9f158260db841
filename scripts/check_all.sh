#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The long checks, before a release:
#   scripts/check_all.sh             all of them: some hours on two cores
#   scripts/check_all.sh NAME...     some. scripts/check_changed.sh runs those that a change can concern.
#
# Those of .ci/run: test wide resources demo race nvcc asan format docs site. And, with why each is not there:
#   headers     each header alone, by both compilers in both standards: four minutes, where .ci/run has all together
#   benchmarks  are programs that no test needs; .ci/run builds one for the host and one for a GPU (docs)
#   resources_all  kernels on all architectures: .ci/run compiles them for the first and the last
#   cuda        tests, benchmarks and examples for GPUs: twelve minutes of nvcc for kernels that `nvcc` and `resources`
#               have compiled
#   t4          tests for GPUs in machine code, on a T4 in software, and what its kernels take; its model beside records:
#               half an hour of nvcc, where `nvcc` runs the reference models alone
#   cuda12      cuda by another toolkit, which it fetches
#   bundle      fetches two systems and a toolkit
#   asan_all    kernels, whose accesses `race` sees, too; the engine and the ops of the host: a third build of all of it
#   clang       another build of everything; .ci/run compiles all headers by clang
#   seeds       twenty thousand random models; stress: the same tests 20 times
#   fuzz, soak  search for minutes: what .ci/run finds must not depend on luck
#   redis       a million rows, 2 GB of memory
#   torch, tensorflow, packages, tutorial    install gigabytes
#   perf_analyzer  installs Triton's load generator
#   bench       measures: needs an idle machine
#
# WARPRANK_TEST_SEEDS   how many random models and batches the property tests try (default here 20000)
# WARPRANK_FUZZ_SECONDS how long each fuzz target runs (default 300)
# WARPRANK_SOAK_SECONDS how long the server is called while models are exchanged (default 600)
source "$(dirname "$0")/common.sh"
source scripts/checks.sh

checks=("$@")
if ((!$#)); then
  checks=(test wide resources race nvcc asan resources_all benchmarks cuda t4 cuda12 bundle seeds asan_all clang fuzz soak
          stress redis torch tensorflow perf_analyzer headers packages format demo docs site tutorial bench)
fi
expect_checks "${checks[@]}"
step "packages" scripts/install_deps.sh check || { summary; exit 1; }
for check in "${checks[@]}"; do
  step "$check" "check_$check" || true
done
summary
