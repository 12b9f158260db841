// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The CUDA engine's implementation. Include it in one source file of a program or shared library, compiled by nvcc; or
/// link the target warprank::cuda_engine, which is that. Everything else includes warprank/cuda.hpp.

#include "warprank/engine/cuda/model.cuh"

namespace warprank {

const Engine& cuda_engine() {
  static const cuda_backend::CudaEngine engine;
  return engine;
}

int num_cuda_devices() { return device::num_devices(); }

}  // namespace warprank
