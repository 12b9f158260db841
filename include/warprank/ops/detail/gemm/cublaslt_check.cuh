// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What layers cuBLASLt may be given.

#include <string>

#include "warprank/core/cuda_error.hpp"
#include "warprank/core/error.hpp"
#include "warprank/ops/detail/gemm/row_major.hpp"
#include "warprank/ops/linear.cuh"

namespace warprank { inline namespace v0 {

/// Thrown where cuBLASLt has no algorithm for a layer.
class no_cublaslt_algorithm : public cuda_error {
 public:
  no_cublaslt_algorithm() : cuda_error("asking cuBLASLt for an algorithm", 15, "CUBLAS_STATUS_NOT_SUPPORTED") {}
};

namespace detail::gemm {

inline void check_cublas_linear(LinearLayer layer, const RowMajorWeights& weights, const void* bias) {
  Problems problems;
  const std::string what = "linear layer of cuBLASLt";
  layer.weights = weights.data;
  linear::check_layer(layer, what, problems);
  if (weights.stride < layer.x.cols)
    problems.add(what + "'s weights", "a stride of at least its " + std::to_string(layer.x.cols) + " inputs",
                 std::to_string(weights.stride));
  if (bias != nullptr) check_pointer(what + "'s bias", bias, 16, problems);
  if (!cublaslt_fuses(layer.activation.kind))
    problems.add(what + "'s activation", "identity, relu or gelu_tanh", name_of_enum(layer.activation.kind));
  const auto refuse = [&](const char* name, bool is_there) {
    if (is_there) problems.add(what, "a bias and an activation alone", name);
  };
  refuse("a row bias", layer.row_bias.values.data != nullptr);
  refuse("a factor", layer.multiply.data != nullptr);
  refuse("a residual", layer.residual.data != nullptr);
  refuse("groups", layer.groups.num_groups != 0);
  problems.throw_if_any();
}

}  // namespace detail::gemm
}}  // namespace warprank::v0
