// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A linear layer by cuBLASLt itself. cublaslt.cuh documents and includes it.

#include "warprank/ops/detail/gemm/cublaslt.cuh"

#if defined(__CUDACC__) && defined(WARPRANK_CUBLASLT)

#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "warprank/core/cuda_error.hpp"

namespace warprank {

inline constexpr bool has_cublaslt = true;
inline int64_t cublaslt_version() { return static_cast<int64_t>(cublasLtGetVersion()); }

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
  /// `bias`, of y's type, may be null. Throws invalid_argument for what cuBLASLt does not fuse, no_cublaslt_algorithm,
  /// and cuda_error for what else it refuses.
  CublasLinear(const LinearLayer& layer, const RowMajorWeights& weights, const void* bias);

  int64_t workspace_bytes() const { return workspace_bytes_; }

  WARPRANK_HIDDEN void launch(void* workspace, cudaStream_t stream) const {
    if (layer_.x.rows == 0) return;
    const float one = 1, zero = 0;
    detail::check_cublas(
        cublasLtMatmul(handle_.get(), product_.get(), &one, weights_.data, weights_layout_.get(), layer_.x.data,
                       x_layout_.get(), &zero, layer_.y.data, y_layout_.get(), layer_.y.data, y_layout_.get(),
                       &algorithm_, workspace, static_cast<size_t>(workspace_bytes_), stream),
        "launching a linear layer of cuBLASLt");
  }

 private:
  using Layout = detail::CublasObject<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

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
  RowMajorWeights weights_;
  int64_t workspace_bytes_ = 0;
  detail::CublasObject<cublasLtHandle_t, cublasLtDestroy> handle_;
  detail::CublasObject<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> product_;
  Layout weights_layout_, x_layout_, y_layout_;
  cublasLtMatmulAlgo_t algorithm_{};
};

// ---- Implementation

WARPRANK_HIDDEN inline CublasLinear::CublasLinear(const LinearLayer& layer, const RowMajorWeights& weights,
                                                  const void* bias)
    : layer_(layer), weights_(weights) {
  detail::check_cublas_linear(layer, weights, bias);
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
  weights_layout_ = layout_of(CUDA_R_16F, out, in, weights.stride);
  x_layout_ = layout_of(CUDA_R_16F, layer.x.rows, in, layer.x.stride);
  y_layout_ = layout_of(layer.y.type == DType::f16 ? CUDA_R_16F : CUDA_R_32F, layer.y.rows, out, layer.y.stride);
  choose_algorithm();
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
  constexpr size_t most_workspace_bytes = size_t{32} << 20;
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most_workspace_bytes);
  // Parts of a sum would be cut as suits the place of a tile, and a row's bits would depend on its neighbours.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(weights_.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(layer_.x.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(layer_.y.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(layer_.y.data));
  cublasLtMatmulHeuristicResult_t found{};
  int num_found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), product_.get(), weights_layout_.get(), x_layout_.get(),
                                     y_layout_.get(), y_layout_.get(), created, 1, &found, &num_found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) throw no_cublaslt_algorithm();
  detail::check_cublas(status, "asking cuBLASLt for an algorithm");
  if (num_found == 0) throw no_cublaslt_algorithm();
  algorithm_ = found.algo;
  workspace_bytes_ = static_cast<int64_t>(found.workspaceSize);
}

}  // namespace warprank

#endif  // __CUDACC__ && WARPRANK_CUBLASLT
