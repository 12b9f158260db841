// SPDX-License-Identifier: Apache-2.0
//
// The main function of kernel tests on a GPU. Without one they are skipped, and counted.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "warprank/device/target.hpp"

namespace {

constexpr int skipped = 77;  // what CTest is told to take for it

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  setenv("WARPRANK_TUNE_AT_BIND", "0", 0);  // hundreds of small models are bound, for up to a second each
  int num_devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&num_devices);
  if (code != cudaSuccess || num_devices == 0) {
    std::printf("SKIPPED %d tests: there is no GPU (%s)\n", testing::UnitTest::GetInstance()->total_test_count(),
                cudaGetErrorString(code));
    return skipped;
  }
  cudaDeviceProp device;
  warprank::check_cuda(cudaGetDeviceProperties(&device, 0), "describe the device");
  std::printf("%s, sm_%d%d, with code for sm_%d\n", device.name, device.major, device.minor,
              warprank::device::target());
  return RUN_ALL_TESTS();
}
