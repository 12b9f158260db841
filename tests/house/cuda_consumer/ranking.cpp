// SPDX-License-Identifier: Apache-2.0

#include <warprank/cuda.hpp>

#include <exception>
#include <iostream>
#include <string>

#include "../tiny_model.hpp"

/// Where there is no device, whether the engine says so.
bool ranks_on_a_gpu() {
  const int num_devices = warprank::num_cuda_devices();
  try {
    return are_right(score_with_tiny_model(warprank::cuda()));
  } catch (const std::exception& error) {
    std::cout << "devices: " << num_devices << "; " << error.what() << '\n';
    return num_devices == 0 && std::string(error.what()).find("CUDA error") != std::string::npos;
  }
}
