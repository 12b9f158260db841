#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The long checks, before a release:
#   scripts/check_all.sh             all of them: about two hours on two cores
#   scripts/check_all.sh NAME...     some: test race benchmarks cuda cuda12 bundle seeds asan clang fuzz soak redis torch
#                                    tensorflow headers packages format docs site tutorial bench
#
# WARPRANK_TEST_SEEDS   how many random models and batches the property tests try (default here 20000)
# WARPRANK_FUZZ_SECONDS how long each fuzz target runs (default 300)
# WARPRANK_SOAK_SECONDS how long the server is called while models are exchanged (default 600)
source "$(dirname "$0")/common.sh"

seeds=${WARPRANK_TEST_SEEDS:-20000} fuzz_seconds=${WARPRANK_FUZZ_SECONDS:-300}
soak_seconds=${WARPRANK_SOAK_SECONDS:-600}

# build_and_test PRESET [ctest option...]
build_and_test() {
  local preset=$1
  shift
  cmake --preset "$preset" -D WARPRANK_WERROR=ON && cmake --build --preset "$preset" && ctest --preset "$preset" "$@"
}

check_test() { scripts/test.sh; }

# The kernels' tests in the build that finds races, accesses out of bounds and reads of what nobody wrote.
check_race() {
  cmake --preset cpu -D WARPRANK_KERNEL_RACE=ON && cmake --build --preset cpu && ctest --preset cpu -R '_race$'
}

# Those for the host compile; those for a GPU check their results on the executor, untimed.
check_benchmarks() {
  local program
  cmake --preset cpu && cmake --build --preset cpu --target all executor_benchmarks || return 1
  for program in build/cpu/benchmarks/*_bench_executor; do
    "$program" || return 1
  done
}

# What needs a card is compiled for a T4, and skipped; scripts/gpu_check.sh runs it where there is one.
check_cuda() {
  if ! command -v nvcc >/dev/null; then
    echo "nvcc is not on PATH: nothing is compiled for GPUs"
    return
  fi
  compile_for_gpus t4
}

# The same by CUDA 12, which it fetches.
check_cuda12() { scripts/fetch_cuda.sh build/cuda12 && compile_for_gpus t4-cuda12; }

compile_for_gpus() {
  cmake --preset "$1" -D WARPRANK_WERROR=ON &&
    cmake --build --preset "$1" --target house_nvcc gpu_tests gpu_benchmarks gpu_examples &&
    ctest --test-dir "build/$1" -L gpu
}

# Small bundles, by CUDA 12, which it fetches, and by the nvcc on PATH.
check_bundle() {
  scripts/fetch_cuda.sh build/cuda12 && scripts/fetch_debian11.sh build/debian11 &&
    scripts/fetch_ubuntu2004.sh build/ubuntu2004 && pack_and_run --cuda build/cuda12 || return 1
  if ! command -v nvcc >/dev/null; then
    echo "nvcc is not on PATH: nothing is packed by it"
    return
  fi
  pack_and_run
}

# pack_and_run [option...]: of scripts/package_benchmarks.sh. In Debian 11 and Ubuntu 20.04, with nothing of this system
# in sight.
pack_and_run() {
  local folder result
  folder=$(mktemp -d)
  scripts/package_benchmarks.sh "$folder/lab.tar.xz" --debian11 build/debian11 --without-cublaslt "$@" \
    --only '^(support_kernel_testing_kernel_test|ids_ids_kernel_test|machine_bench)_gpu$' &&
    run_bundle_in "$folder" build/debian11/root && run_bundle_in "$folder" build/ubuntu2004
  result=$?
  rm -rf "$folder"
  return $result
}

# run_bundle_in FOLDER SYSTEM: FOLDER/lab.tar.xz. Up to "no GPU", which is status 1; and programs need glibc alone.
run_bundle_in() {
  local folder=$1 status=0 needed
  rm -rf "$folder/root"
  cp -a "$2" "$folder/root" && tar -C "$folder/root/opt" -xf "$folder/lab.tar.xz" || return 1
  chroot "$folder/root" /bin/bash -c 'cd / && env -i PATH=/usr/bin:/bin /opt/warprank-lab-*/run /out --quick' ||
    status=$?
  ((status == 1)) && grep -qE '^0 steps failed, .*There is no GPU that programs can use' "$folder/root/out/report.md" &&
    needed=$(chroot "$folder/root" /bin/bash -c 'ldd /opt/warprank-lab-*/bin/*/*' | grep -oP '^\t(/\S*/)?\K[^. ]+' |
      sort -u) &&
    echo "programs need:" $needed && grep -qx libc <<<"$needed" &&
    ! grep -vxE 'libc|libm|libdl|librt|libpthread|ld-linux-x86-64|linux-vdso' <<<"$needed"
}

check_seeds() {
  cmake --preset cpu && cmake --build --preset cpu &&
    WARPRANK_TEST_SEEDS=$seeds ctest --preset cpu -L unit --timeout 3600
}

# The sanitizers change nothing in what the house checks and nvcc compiles; kernels have sanitized builds of their own.
check_asan() {
  cmake --preset cpu -D WARPRANK_KERNEL_ASAN=ON && cmake --build --preset cpu && ctest --preset cpu -R '_asan$' &&
    build_and_test asan -LE 'house|resources|simt'
}

check_clang() { build_and_test clang -LE 'house|resources'; }

check_fuzz() {
  cmake --preset fuzz -D WARPRANK_FUZZ_SECONDS="$fuzz_seconds" && cmake --build --preset fuzz && ctest --preset fuzz
}

check_soak() {
  cmake --preset cpu && cmake --build --preset cpu --target server client_vectors &&
    WARPRANK_SOAK_SECONDS=$soak_seconds ctest --preset cpu -R '^client_server$'
}

# A million rows in a cluster of six servers; takes 2 GB of memory. And a server that knows nothing of Redis.
check_redis() {
  local output
  cmake --preset cpu && cmake --build --preset cpu --target store_redis_cluster_redis_test &&
    WARPRANK_TEST_ROWS=1000000 ctest --preset cpu -R '^store_redis_cluster_redis_test$' || return 1
  cmake --preset cpu -B build/cpu_without_redis -D WARPRANK_REDIS=OFF &&
    cmake --build build/cpu_without_redis --target server || return 1
  ! ldd build/cpu_without_redis/examples/server | grep hiredis || return 1
  if output=$(build/cpu_without_redis/examples/server --in-redis 'film=1' --redis 127.0.0.1:1 2>&1); then return 1; fi
  grep -q '^--in-redis: expected a program that was built with hiredis ' <<<"$output"
}

# Installs PyTorch, which takes some gigabytes; skipped, and says so, where that cannot be had.
check_torch() {
  local result=0
  tests/python/run.py build/cpu/python --torch || result=$?
  ((result == 0 || result == 77))
}

# Installs TensorFlow, as above. Rows of Criteo's layout are also timed on two cores.
check_tensorflow() {
  local result=0
  tests/python/run.py build/cpu/python --tensorflow || result=$?
  ((result == 77)) && return
  ((result == 0)) && build/cpu/python/tensorflow/bin/python tools/bench_keras.py --only text --rows 32768 \
    --least-ratio 3 --least-rows 200000
}

check_headers() {
  local compiler standard
  for compiler in g++ clang++; do
    for standard in c++17 c++20; do
      tests/house/check_headers.sh include "$compiler" "$standard" || return 1
    done
  done
}

check_packages() { scripts/check_packages.sh; }

check_format() { scripts/format.sh; }

check_docs() { scripts/check_docs.py --run; }

# As a newcomer would go through it; installs PyTorch.
check_tutorial() { scripts/check_tutorial.py; }

check_site() { scripts/build_site.sh; }

check_bench() { scripts/bench_host.sh; }

checks=("$@")
if ((!$#)); then
  checks=(test race benchmarks cuda cuda12 bundle seeds asan clang fuzz soak redis torch tensorflow headers packages format
          docs site tutorial bench)
fi
for check in "${checks[@]}"; do
  if [[ $(type -t "check_$check") != function ]]; then
    echo "$0: there is no check called $check" >&2
    exit 2
  fi
done
step "packages" scripts/install_deps.sh check || { summary; exit 1; }
for check in "${checks[@]}"; do
  step "$check" "check_$check" || true
done
summary
