// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Products of cuBLASLt as baselines. Of the algorithms that it proposes the one that measures fastest is taken: nobody
/// who tunes takes less.

#if defined(__CUDACC__) && defined(WARPRANK_BENCH_CUBLASLT)

#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <type_traits>
#include <vector>

#include "measure_cuda.cuh"
#include "warprank/core/cuda_error.hpp"
#include "warprank/core/float_matrix.hpp"
#include "warprank/core/view.hpp"

namespace warprank::bench {

inline void check_cublas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw cuda_error(what, static_cast<int>(status), cublasLtGetStatusName(status));
}

inline cublasLtHandle_t cublas_handle() {
  static const cublasLtHandle_t handle = [] {
    cublasLtHandle_t created;
    check_cublas(cublasLtCreate(&created), "starting cuBLASLt");
    return created;
  }();
  return handle;
}

/// y = relu, or nothing, of x W^T + b.
class CublasProduct {
 public:
  /// W [out, in] of FP16, b [out] of y's type or null, all in device memory that outlives this.
  CublasProduct(Matrix<const float16> x, const float16* weight, const void* bias, bool is_relu, FloatMatrix<void> y)
      : x_(x), weight_(weight), y_(y) {
    check_cublas(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    // y^T [out, M] = W [out, in] x^T [in, M], all of them by columns.
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (bias == nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, is_relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT);
    } else {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, is_relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    weight_layout_ = layout_of(CUDA_R_16F, y.cols, x.cols, x.cols);
    x_layout_ = layout_of(CUDA_R_16F, x.rows, x.cols, x.stride);
    y_layout_ = layout_of(y.type == DType::f16 ? CUDA_R_16F : CUDA_R_32F, y.rows, y.cols, y.stride);
    const bool has_bias = bias != nullptr;
    // Products of one shape have one algorithm; addresses count by their alignment.
    static std::map<std::vector<int64_t>, cublasLtMatmulAlgo_t> chosen;
    const auto [at, is_new] =
        chosen.try_emplace({x.rows, x.cols, x.stride, y.cols, y.stride, static_cast<int64_t>(y.type), has_bias, is_relu,
                            alignment(x.data), alignment(weight), alignment(y.data)});
    if (is_new) at->second = choose_algorithm();
    algorithm_ = at->second;
  }
  CublasProduct(const CublasProduct&) = delete;
  CublasProduct& operator=(const CublasProduct&) = delete;
  ~CublasProduct() {
    for (const cublasLtMatrixLayout_t layout : {weight_layout_, x_layout_, y_layout_})
      cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(product_);
  }

  void launch(cudaStream_t stream) const { launch(algorithm_, stream); }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    check_cublas(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof value), "describing a product");
  }
  /// A row-major matrix is its transpose by columns.
  static cublasLtMatrixLayout_t layout_of(cudaDataType_t type, int64_t rows, int64_t cols, int64_t stride) {
    cublasLtMatrixLayout_t layout;
    check_cublas(
        cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(cols), static_cast<uint64_t>(rows), stride),
        "describing a matrix");
    return layout;
  }
  void launch(const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) const {
    const float one = 1, zero = 0;
    check_cublas(cublasLtMatmul(cublas_handle(), product_, &one, weight_, weight_layout_, x_.data, x_layout_, &zero,
                                y_.data, y_layout_, y_.data, y_layout_, &algorithm, Card::current().workspace(),
                                static_cast<size_t>(Card::workspace_bytes), stream),
                 "launching a product of cuBLASLt");
  }
  static uint32_t alignment(const void* data) {
    const auto address = reinterpret_cast<uintptr_t>(data);
    return static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), 256));
  }
  cublasLtMatmulAlgo_t choose_algorithm() const {
    cublasLtMatmulPreference_t preference;
    check_cublas(cublasLtMatmulPreferenceCreate(&preference), "asking for algorithms");
    const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                          cublasStatus_t (*)(cublasLtMatmulPreference_t)>
        owned(preference, cublasLtMatmulPreferenceDestroy);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check_cublas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
                   "asking for algorithms");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<size_t>(Card::workspace_bytes));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(weight_));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(x_.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(y_.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(y_.data));
    constexpr int most = 8;
    cublasLtMatmulHeuristicResult_t found[most] = {};
    int num_found = 0;
    check_cublas(cublasLtMatmulAlgoGetHeuristic(cublas_handle(), product_, weight_layout_, x_layout_, y_layout_,
                                                y_layout_, preference, most, found, &num_found),
                 "asking for algorithms");
    cublasLtMatmulAlgo_t fastest{};
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < num_found; ++i) {
      try {
        TimedCalls calls([&](cudaStream_t stream) { launch(found[i].algo, stream); }, nullptr, true);
        for (int again = 0; again < 3; ++again) calls.run();
        if (calls.seconds() < best) best = calls.seconds(), fastest = found[i].algo;
      } catch (const cuda_error&) {  // that one cannot do it after all
      }
    }
    if (best == std::numeric_limits<double>::infinity())
      check_cublas(CUBLAS_STATUS_NOT_SUPPORTED, "choosing an algorithm of cuBLASLt");
    return fastest;
  }

  Matrix<const float16> x_;
  const float16* weight_;
  FloatMatrix<void> y_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t weight_layout_ = nullptr, x_layout_ = nullptr, y_layout_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace warprank::bench

#endif
