# SPDX-License-Identifier: Apache-2.0
#
# For .ci/run and scripts/check_all.sh to source, behind common.sh: what each check does, check_NAME for NAME. A check
# that cannot even be built returns $cannot_build.
cannot_build=3

seeds=${WARPRANK_TEST_SEEDS:-20000} fuzz_seconds=${WARPRANK_FUZZ_SECONDS:-300}
soak_seconds=${WARPRANK_SOAK_SECONDS:-600}

# build PRESET [-D NAME=VALUE...] [--target NAME...]: configures and builds; returns $cannot_build if that fails.
build() {
  local preset=$1 definitions=()
  shift
  while [[ ${1:-} == -D ]]; do
    definitions+=("$1" "$2")
    shift 2
  done
  cmake --preset "$preset" -D WARPRANK_WERROR=ON "${definitions[@]}" && cmake --build --preset "$preset" "$@" ||
    return $cannot_build
}

# run_tests PRESET [ctest option...]: and says which came near their time limits.
run_tests() {
  local preset=$1 results result=0
  shift
  results=build/times/$check-$(date +%s%N).xml
  mkdir -p build/times
  ctest --preset "$preset" --output-junit "$PWD/$results" "$@" || result=$?
  if ((result != 0)) && [[ -f build/$preset/Testing/Temporary/LastTestsFailed.log ]]; then
    mapfile -t -O ${#failed_tests[@]} failed_tests < <(sed "s/^[0-9]*:/$check: /" \
      "build/$preset/Testing/Temporary/LastTestsFailed.log")
  fi
  mapfile -t -O ${#skipped_tests[@]} skipped_tests < <(python3 scripts/test_times.py --skipped "$results" |
    sed "s/^/$check: /")
  python3 scripts/test_times.py --preset "$preset" "$results" || result=1
  return $result
}

only_plain=(-D WARPRANK_KERNEL_RACE=OFF -D WARPRANK_KERNEL_ASAN=OFF -D WARPRANK_BUILD_BENCHMARKS=OFF)

# --- in .ci/run

check_test() { build cpu "${only_plain[@]}" --target quick_tests && run_tests cpu -LE 'wide|resources'; }

# All headers together, units that differ in their instruction sets, projects of users, the Python package, the client
# in Python, servers of Redis, the T4 in software, inputs that fuzzing kept, bundles whose programs hang.
check_wide() { build cpu "${only_plain[@]}" && run_tests cpu -L wide; }

# What kernels take of a GPU, on the first and the last architecture, where nvcc is.
check_resources() { WARPRANK_TARGETS="75 90" check_resources_all; }

check_demo() { scripts/demo.sh && scripts/demo.sh --user 1; }

# The kernels' tests in the build that finds races, accesses out of bounds and reads of what nobody wrote.
check_race() {
  build cpu -D WARPRANK_KERNEL_RACE=ON -D WARPRANK_KERNEL_ASAN=OFF -D WARPRANK_BUILD_BENCHMARKS=OFF &&
    run_tests cpu -R '_race$'
}

# For a T4: each header, kernel and kind of program once, with the engine of the host that `test` has, and the kernels
# of the reference models in machine code, where nvdisasm is or can be fetched. All others are those of `cuda` and `t4`.
check_nvcc() {
  local preset=t4-software targets=(gpu_sample models_run_model t4_cudart)
  has_nvcc || return $?
  if ! command -v nvdisasm >/dev/null && ! scripts/fetch_nvdisasm.sh build/nvdisasm; then
    echo "There is no nvdisasm: what nvcc makes is not executed"
    preset=t4 targets=(gpu_sample)
  fi
  build cpu --target warprank_host && build $preset -D WARPRANK_HOST_ARCHIVE="$PWD/build/cpu/libwarprank_host.a" \
    --target "${targets[@]}" && run_tests $preset -L gpu_sample
}

has_nvcc() {
  command -v nvcc >/dev/null && return
  echo "nvcc is not on PATH: nothing is compiled for GPUs"
  return $skipped
}

# Host code that handles memory and bytes of others, with sanitizers. All else is in `asan_all`.
check_asan() { build asan --target memory_tests memory_replays && run_tests asan -L memory; }

check_format() { scripts/format.sh; }

# Some of its commands build more: a benchmark for the host and one for a GPU, on the executor.
check_docs() {
  build cpu --target ops_host_test show_plan embed_in_service feed_pages tiers && scripts/check_docs.py --run
}

check_site() { scripts/build_site.sh; }

# --- in check_all.sh alone

# Those for the host compile; those for a GPU check their results on the executor, untimed.
check_benchmarks() {
  local program
  build cpu --target all executor_benchmarks || return $?
  for program in build/cpu/benchmarks/*_bench_executor; do
    "$program" || return 1
  done
}

# On all architectures.
check_resources_all() { cmake --preset cpu -D WARPRANK_WERROR=ON || return $cannot_build; run_tests cpu -L resources; }

# What needs a card is compiled for a T4, and skipped; scripts/gpu_check.sh runs it where there is one.
check_cuda() { has_nvcc && compile_for_gpus t4; }

# The tests for GPUs and the cycles of the reference models, executed in the machine code of a T4 (tools/t4/), whose own
# tests are in `wide`; and the model of it beside records of other cards.
check_t4() {
  has_nvcc || return $?
  scripts/fetch_nvdisasm.sh build/nvdisasm || return 1
  build t4-software -D WARPRANK_HOST_ARCHIVE= --target gpu_tests models_run_model t4_cudart &&
    run_tests t4-software -L 'gpu|t4' -E '^(house_|t4_test$)' && scripts/check_t4_model.py
}

# The same by CUDA 12, which it fetches.
check_cuda12() { scripts/fetch_cuda.sh build/cuda12 && compile_for_gpus t4-cuda12; }

compile_for_gpus() {
  build "$1" -D WARPRANK_HOST_ARCHIVE= --target house_nvcc gpu_tests gpu_benchmarks gpu_examples &&
    run_tests "$1" -L gpu
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
  build cpu && WARPRANK_TEST_SEEDS=$seeds run_tests cpu -L unit --timeout 3600
}

# Everything. The sanitizers change nothing in what the house checks and nvcc compiles; kernels have sanitized builds of
# their own.
check_asan_all() {
  build cpu -D WARPRANK_KERNEL_ASAN=ON && run_tests cpu -R '_asan$' && build asan &&
    run_tests asan -LE 'house|resources|simt'
}

check_clang() { build clang && run_tests clang -LE 'house|resources'; }

check_fuzz() { build fuzz -D WARPRANK_FUZZ_SECONDS="$fuzz_seconds" && run_tests fuzz; }

check_soak() {
  build cpu --target server client_vectors serving_test &&
    WARPRANK_SOAK_SECONDS=$soak_seconds run_tests cpu -C Soak -R '^(client_server|user_states_soak)$'
}

# What has threads, sockets, servers or clocks, again and again on a machine that is busy.
check_stress() { scripts/stress_tests.sh; }

# A million rows in a cluster of six servers; takes 2 GB of memory. And a server that knows nothing of Redis.
check_redis() {
  local output
  build cpu --target store_redis_cluster_redis_test &&
    WARPRANK_TEST_ROWS=1000000 run_tests cpu -R '^store_redis_cluster_redis_test$' || return $?
  cmake --preset cpu -B build/cpu_without_redis -D WARPRANK_WITH_REDIS=OFF &&
    cmake --build build/cpu_without_redis --target server || return $cannot_build
  ! ldd build/cpu_without_redis/examples/server | grep hiredis || return 1
  if output=$(build/cpu_without_redis/examples/server --in-redis 'film=1' --redis 127.0.0.1:1 2>&1); then return 1; fi
  grep -q '^--in-redis: expected a program that was built with hiredis ' <<<"$output"
}

# Installs PyTorch, which takes some gigabytes; skipped, and says so, where that cannot be had. Then models of zoos.
check_torch() {
  tests/python/run.py build/cpu/python --torch && build/cpu/python/torchrec/bin/python tools/zoo.py build/zoo
}

# Installs TensorFlow, as above. Rows of Criteo's layout are also timed on two cores; then models of a zoo.
check_tensorflow() {
  tests/python/run.py build/cpu/python --tensorflow || return $?
  build/cpu/python/tensorflow/bin/python tools/bench_keras.py --only text --rows 32768 \
    --least-ratio 3 --least-rows 200000 || return $?
  build/cpu/python/tensorflow/bin/python tools/zoo_deepctr.py build/zoo
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

# Triton's load generator, as it is, by gRPC and by HTTP; installs it, or is skipped, and says so.
check_perf_analyzer() {
  build cpu --target server && scripts/check_perf_analyzer.py build/cpu/examples/server build/cpu/perf_analyzer
}

# As a newcomer would go through it; installs PyTorch.
check_tutorial() { scripts/check_tutorial.py; }

check_bench() { scripts/bench_host.sh; }
