// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A linear layer by cuBLASLt, where it is the faster: y = f(x W^T + b) with f identity, relu or gelu_tanh, FP16 in,
/// FP32 sums. Nobody links it: programs that are compiled with cublasLt.h look for the library when they first want it,
/// and has_cublaslt() says whether it is there. WARPRANK_WITHOUT_CUBLASLT compiles programs that do not look. With the
/// executor of kernels a kernel of ours stands in for it. All units of a program are compiled alike.
///
/// It is described as for ops/linear.cuh, but for its weights, which are RowMajorWeights. All rows of the capacity are
/// computed, however many there are: those behind them may hold anything and are not to be read. A row's bits may
/// depend on the capacity and the algorithm. A result above the largest FP16 is stored as infinity.
///
///     CublasLinear linear(layer, weights, bias);           // its favourite; may throw no_cublaslt_algorithm
///     ... linear.workspace_bytes() of device memory, aligned to 256, which one launch uses at a time ...
///     linear.launch({nullptr, workspace}, stream);         // one or several kernels; a graph keeps the addresses
///
/// Its favourite does not cut sums into parts. Others may (cuts_sums): a row then has the same bits whatever its place
/// only if the parts of all tiles are alike, which is to be seen by trying (engine/cuda/tune.cuh).

#include <cstdint>
#include <string>

#include "warprank/core/on_cuda.hpp"
#include "warprank/device/launch_recorder.hpp"
#include "warprank/ops/detail/gemm/cublaslt_check.cuh"

#if defined(WARPRANK_ON_CUDA) && !defined(WARPRANK_WITHOUT_CUBLASLT)
#if __has_include(<cublasLt.h>)
#define WARPRANK_HAS_CUBLASLT_HEADER 1
#endif
#endif

#if !defined(WARPRANK_ON_CUDA)
#include "warprank/ops/detail/gemm/cublaslt_stand_in.cuh"
#elif defined(WARPRANK_HAS_CUBLASLT_HEADER)
#include "warprank/ops/detail/gemm/cublaslt_library.cuh"
#else

namespace warprank { inline namespace v0 {

inline bool has_cublaslt() { return false; }
inline int64_t cublaslt_version() { return 0; }
inline std::string describe_cublaslt() { return "none: the program was compiled without cublasLt.h"; }

class WARPRANK_HIDDEN CublasLinear {
 public:
  CublasLinear(const LinearLayer&, const RowMajorWeights&, const void*, int = 0) {
    throw invalid_argument("linear layer of cuBLASLt", "a program compiled with cublasLt.h", "one without");
  }
  int64_t workspace_bytes() const { return 0; }
  bool cuts_sums() const { return false; }
  void launch(void*, device::Stream) const {}
};

namespace detail::gemm {
inline std::string text_of_launch(const device::RecordedLaunch& launch) { return launch.to_string(); }
}  // namespace detail::gemm

}}  // namespace warprank::v0

#endif
