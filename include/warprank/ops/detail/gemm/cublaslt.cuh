// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A linear layer by cuBLASLt, where it is the faster: y = f(x W^T + b) with f identity, relu or gelu_tanh, FP16 in,
/// FP32 sums. Only under nvcc; programs link cublasLt.
///
/// It is described as for ops/linear.cuh, but for its weights, which are not packed: W [out, in] FP16, b of y's type.
/// All rows of the capacity are computed, however many there are: those behind them may hold anything and are not to be
/// read. A row's bits may depend on the capacity. A result above the largest FP16 is stored as infinity.

#if defined(__CUDACC__)

#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "warprank/core/cuda_error.hpp"
#include "warprank/ops/linear.cuh"

namespace warprank {

namespace detail {

inline void check_cublas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw cuda_error(what, static_cast<int>(status), cublasLtGetStatusName(status));
}

/// What a handle of cuBLASLt refers to, until it is destroyed.
template <class Handle, cublasStatus_t (*Destroy)(Handle)>
struct DestroyCublas {
  using pointer = Handle;
  void operator()(Handle handle) const { Destroy(handle); }
};
template <class Handle, cublasStatus_t (*Destroy)(Handle)>
using CublasObject = std::unique_ptr<std::remove_pointer_t<Handle>, DestroyCublas<Handle, Destroy>>;

}  // namespace detail

class CublasLinear {
 public:
  /// Chooses the algorithm, for a workspace of this size, aligned to 256. `bias` may be null. Throws invalid_argument
  /// for what cuBLASLt does not fuse, and cuda_error where it has no algorithm.
  CublasLinear(const LinearLayer& layer, const half* weights, const void* bias, void* workspace,
               int64_t workspace_bytes);

  /// Queues one or several kernels; may be captured into a graph, which then holds the addresses it was given.
  WARPRANK_HIDDEN void launch(cudaStream_t stream) const {
    if (layer_.x.rows == 0) return;
    const float one = 1, zero = 0;
    detail::check_cublas(
        cublasLtMatmul(handle_.get(), product_.get(), &one, weights_, weights_layout_.get(), layer_.x.data,
                       x_layout_.get(), &zero, layer_.y.data, y_layout_.get(), layer_.y.data, y_layout_.get(),
                       &algorithm_, workspace_, static_cast<size_t>(workspace_bytes_), stream),
        "launching a linear layer of cuBLASLt");
  }

 private:
  using Layout = detail::CublasObject<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  void check(const void* bias) const;
  /// A row-major matrix is its transpose by columns.
  static Layout layout_of(cudaDataType_t type, int64_t rows, int64_t cols, int64_t stride) {
    cublasLtMatrixLayout_t layout;
    detail::check_cublas(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(cols),
                                                    static_cast<uint64_t>(rows), std::max<int64_t>(stride, 1)),
                         "describing a matrix to cuBLASLt");
    return Layout(layout);
  }
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    detail::check_cublas(cublasLtMatmulDescSetAttribute(product_.get(), attribute, &value, sizeof value),
                         "describing a product to cuBLASLt");
  }
  void choose_algorithm();

  LinearLayer layer_;
  const half* weights_;
  void* workspace_;
  int64_t workspace_bytes_;
  detail::CublasObject<cublasLtHandle_t, cublasLtDestroy> handle_;
  detail::CublasObject<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> product_;
  Layout weights_layout_, x_layout_, y_layout_;
  cublasLtMatmulAlgo_t algorithm_{};
};

// ---- Implementation

WARPRANK_HIDDEN inline CublasLinear::CublasLinear(const LinearLayer& layer, const half* weights, const void* bias,
                                                  void* workspace, int64_t workspace_bytes)
    : layer_(layer), weights_(weights), workspace_(workspace), workspace_bytes_(workspace_bytes) {
  check(bias);
  if (layer.x.rows == 0) return;
  cublasLtHandle_t handle;
  detail::check_cublas(cublasLtCreate(&handle), "starting cuBLASLt");
  handle_.reset(handle);
  cublasLtMatmulDesc_t product;
  detail::check_cublas(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                       "describing a product to cuBLASLt");
  product_.reset(product);
  // y^T [out, M] = W [out, in] x^T [in, M], all of them by columns.
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  const bool has_bias = bias != nullptr;
  cublasLtEpilogue_t epilogue = has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (layer.activation.kind == ActivationKind::relu)
    epilogue = has_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  if (layer.activation.kind == ActivationKind::gelu_tanh)
    epilogue = has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (has_bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const int64_t in = layer.x.cols, out = layer.y.cols;
  weights_layout_ = layout_of(CUDA_R_16F, out, in, in);
  x_layout_ = layout_of(CUDA_R_16F, layer.x.rows, in, layer.x.stride);
  y_layout_ = layout_of(layer.y.type == DType::f16 ? CUDA_R_16F : CUDA_R_32F, layer.y.rows, out, layer.y.stride);
  choose_algorithm();
}

inline void CublasLinear::check(const void* bias) const {
  Problems problems;
  const std::string what = "linear layer of cuBLASLt";
  LinearLayer layer = layer_;
  layer.weights = weights_;
  detail::check_linear(layer, what, problems);
  if (bias != nullptr) detail::check_pointer(what + "'s bias", bias, 16, problems);
  if (workspace_bytes_ > 0) detail::check_pointer(what + "'s workspace", workspace_, 256, problems);
  const ActivationKind f = layer_.activation.kind;
  if (f != ActivationKind::identity && f != ActivationKind::relu && f != ActivationKind::gelu_tanh)
    problems.add(what + "'s activation", "identity, relu or gelu_tanh", name_of_enum(f));
  const auto refuse = [&](const char* name, bool is_there) {
    if (is_there) problems.add(what, "a bias and an activation alone", name);
  };
  refuse("a row bias", layer_.row_bias.data != nullptr);
  refuse("a factor", layer_.multiply.data != nullptr);
  refuse("a residual", layer_.residual.data != nullptr);
  refuse("groups", layer_.groups.num_groups != 0);
  problems.throw_if_any();
}

inline void CublasLinear::choose_algorithm() {
  cublasLtMatmulPreference_t created;
  detail::check_cublas(cublasLtMatmulPreferenceCreate(&created), "asking cuBLASLt for an algorithm");
  const detail::CublasObject<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(created);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    detail::check_cublas(cublasLtMatmulPreferenceSetAttribute(created, attribute, &value, sizeof value),
                         "asking cuBLASLt for an algorithm");
  };
  const auto alignment = [](const void* data) {
    const auto address = reinterpret_cast<uintptr_t>(data);
    return static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), 256));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<size_t>(workspace_bytes_));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(weights_));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(layer_.x.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(layer_.y.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(layer_.y.data));
  cublasLtMatmulHeuristicResult_t found{};
  int num_found = 0;
  detail::check_cublas(
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), product_.get(), weights_layout_.get(), x_layout_.get(),
                                     y_layout_.get(), y_layout_.get(), created, 1, &found, &num_found),
      "asking cuBLASLt for an algorithm");
  if (num_found == 0) detail::check_cublas(CUBLAS_STATUS_NOT_SUPPORTED, "asking cuBLASLt for an algorithm");
  algorithm_ = found.algo;
}

}  // namespace warprank

#endif  // __CUDACC__
