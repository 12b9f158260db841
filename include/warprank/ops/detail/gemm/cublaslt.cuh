// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A linear layer by cuBLASLt, where it is the faster: y = f(x W^T + b) with f identity, relu or gelu_tanh, FP16 in,
/// FP32 sums. Programs that are compiled with WARPRANK_CUBLASLT link cublasLt; with the executor of kernels a kernel of
/// ours stands in for it; otherwise there is none, and has_cublaslt says so. All units of a program are compiled alike.
///
/// It is described as for ops/linear.cuh, but for its weights, which are RowMajorWeights. All rows of the capacity are
/// computed, however many there are: those behind them may hold anything and are not to be read. Sums are not cut into
/// parts. A row's bits may depend on the capacity. A result above the largest FP16 is stored as infinity.
///
///     CublasLinear linear(layer, weights, bias);           // chooses the algorithm; may throw no_cublaslt_algorithm
///     ... linear.workspace_bytes() of device memory, aligned to 256, which one launch uses at a time ...
///     linear.launch(workspace, stream);                    // one or several kernels; a graph keeps the addresses

#include <cstdint>
#include <string>

#include "warprank/core/cuda_error.hpp"
#include "warprank/ops/detail/gemm/row_major.hpp"
#include "warprank/ops/linear.cuh"

namespace warprank {

/// Thrown where cuBLASLt has no algorithm for a layer.
class no_cublaslt_algorithm : public cuda_error {
 public:
  no_cublaslt_algorithm() : cuda_error("asking cuBLASLt for an algorithm", 15, "CUBLAS_STATUS_NOT_SUPPORTED") {}
};

namespace detail {

inline void check_cublas_linear(LinearLayer layer, const RowMajorWeights& weights, const void* bias) {
  Problems problems;
  const std::string what = "linear layer of cuBLASLt";
  layer.weights = weights.data;
  check_linear(layer, what, problems);
  if (weights.stride < layer.x.cols)
    problems.add(what + "'s weights", "a stride of at least its " + std::to_string(layer.x.cols) + " inputs",
                 std::to_string(weights.stride));
  if (bias != nullptr) check_pointer(what + "'s bias", bias, 16, problems);
  if (!cublaslt_fuses(layer.activation.kind))
    problems.add(what + "'s activation", "identity, relu or gelu_tanh", name_of_enum(layer.activation.kind));
  const auto refuse = [&](const char* name, bool is_there) {
    if (is_there) problems.add(what, "a bias and an activation alone", name);
  };
  refuse("a row bias", layer.row_bias.data != nullptr);
  refuse("a factor", layer.multiply.data != nullptr);
  refuse("a residual", layer.residual.data != nullptr);
  refuse("groups", layer.groups.num_groups != 0);
  problems.throw_if_any();
}

}  // namespace detail
}  // namespace warprank

#if !defined(__CUDACC__)
#include "warprank/ops/detail/gemm/cublaslt_stand_in.cuh"
#elif defined(WARPRANK_CUBLASLT)
#include "warprank/ops/detail/gemm/cublaslt_library.cuh"
#else

namespace warprank {

inline constexpr bool has_cublaslt = false;
inline int64_t cublaslt_version() { return 0; }

class CublasLinear {
 public:
  CublasLinear(const LinearLayer&, const RowMajorWeights&, const void*) {
    throw invalid_argument("linear layer of cuBLASLt", "a program compiled with WARPRANK_CUBLASLT", "one without");
  }
  int64_t workspace_bytes() const { return 0; }
  void launch(void*, device::Stream) const {}
};

}  // namespace warprank

#endif
