// SPDX-License-Identifier: Apache-2.0
#pragma once

/// For scripts/compare_prototypes.py: the library's kernels behind functions that take no type of its headers, since
/// prototypes include CUDA's own halves. Each `lib_<op>` gives a primitive with its memory, `lib_<op>_run` launches it.
/// Nothing is freed: a program measures each once.

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "warprank/core/cuda_error.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/resident.hpp"

namespace warprank::prototypes {

template <class Op>
void* resident(Op op) {
  return new Resident<Op>(std::move(op));
}
template <class Op>
void launch(const void* op, cudaStream_t stream) {
  static_cast<const Resident<Op>*>(op)->launch(stream);
}

inline void* upload(const void* bytes, size_t num_bytes) {
  void* to = nullptr;
  check_cuda(cudaMalloc(&to, num_bytes), "allocate memory");
  check_cuda(cudaMemcpy(to, bytes, num_bytes, cudaMemcpyHostToDevice), "copy to the device");
  return to;
}
inline Matrix<const float16> halves(const void* data, int64_t rows, int64_t cols) {
  return {static_cast<const float16*>(data), rows, cols};
}
inline Matrix<float16> halves(void* data, int64_t rows, int64_t cols) {
  return {static_cast<float16*>(data), rows, cols};
}

}  // namespace warprank::prototypes
