// SPDX-License-Identifier: Apache-2.0

// The main program of benchmarks on a GPU. Without one it says so, and that is no failure.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <string>

#include "gpu_program.hpp"
#include "warprank/device/find_device.hpp"

// For programs that name their benchmarks by BENCHMARK.
__attribute__((weak)) void warprank::bench::add_benchmarks() {}

int main(int argc, char** argv) {
  if (const auto why = warprank::device::why_unusable(warprank::device::backend::runtime::find_device(0))) {
    std::printf("skipped: there is no GPU (%s)\n", why->what());
    return 0;
  }
  const warprank::device::DeviceInfo info = warprank::device::device_info(0);
  benchmark::AddCustomContext("gpu", info.name);
  benchmark::AddCustomContext("gpu_target", std::to_string(info.target));
  benchmark::AddCustomContext("gpu_driver", std::to_string(info.driver_version));
  benchmark::AddCustomContext("cuda_runtime", std::to_string(info.runtime_version));
  warprank::bench::add_benchmarks();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return warprank::bench::num_failed == 0 ? 0 : 1;
}
