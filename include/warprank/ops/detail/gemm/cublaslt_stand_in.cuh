// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What stands in for cuBLASLt with the executor of kernels: the same sums by the simplest kernel, all rows of the
/// capacity. cublaslt.cuh documents and includes it.

#include "warprank/ops/detail/gemm/cublaslt_check.cuh"

#if !defined(WARPRANK_ON_CUDA)

#include <algorithm>
#include <cstdint>
#include <vector>

#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/launch_recorder.hpp"
#include "warprank/ops/detail/common/activation.cuh"

namespace warprank { inline namespace v0 {

namespace detail::gemm {

struct CublasArguments {
  Matrix<const float16> x;
  RowMajorWeights weights;
  const void* bias;  // of y's type
  DeviceActivation activation;
  FloatMatrix<void> y;
  int algorithm;
  float* second;  // [rows, columns]: sums of the second part; null: there is one
};

inline constexpr int stand_in_threads = 32, stand_in_columns = 8;  // of a thread

/// For tests: layers of so many outputs have no algorithm; and there is no library.
inline int64_t stand_in_has_none_for = -1;
inline bool stand_in_is_missing = false;

/// It has three: sums in one piece; in two parts; and in two parts that depend on the row, as no engine may take.
inline constexpr int stand_in_algorithms = 3;
inline int64_t stand_in_cut(int algorithm, int64_t row, int64_t inputs) {
  return algorithm == 0 ? inputs : algorithm == 1 ? inputs / 2 : (1 + row % 8) * inputs / 16;
}

/// Plain accesses: how cuBLASLt accesses memory is not ours to count.
template <class = void>
WARPRANK_KERNEL(stand_in_threads, 1)
cublaslt_stand_in_kernel(CublasArguments arguments) {
  const Matrix<const float16>& x = arguments.x;
  const RowMajorWeights& weights = arguments.weights;
  const FloatMatrix<void>& y = arguments.y;
  const int64_t first = device::global_thread_rank() * stand_in_columns;
  const int64_t columns = std::min<int64_t>(stand_in_columns, y.cols - first);
  if (columns <= 0) return;
  std::vector<float> w(static_cast<size_t>(x.cols * stand_in_columns), 0.0f), row(static_cast<size_t>(x.cols));
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t k = 0; k < x.cols; ++k)
      w[static_cast<size_t>(k * stand_in_columns + c)] = to_float(weights.data[(first + c) * weights.stride + k]);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t k = 0; k < x.cols; ++k) row[static_cast<size_t>(k)] = to_float(x.row(r)[k]);
    float sums[stand_in_columns] = {}, second[stand_in_columns] = {};
    const auto cut = static_cast<size_t>(stand_in_cut(arguments.algorithm, r, x.cols));
    for (size_t k = 0; k < row.size(); ++k)
      for (size_t c = 0; c < stand_in_columns; ++c)
        (k < cut ? sums : second)[c] += row[k] * w[k * stand_in_columns + c];
    float* const workspace = arguments.second == nullptr ? nullptr : arguments.second + r * y.cols + first;
    for (int64_t c = 0; c < columns && workspace != nullptr; ++c) workspace[c] = second[c];
    for (int64_t c = 0; c < columns && workspace != nullptr; ++c) sums[c] += workspace[c];
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t column = first + c, at = r * y.stride + column;
      const auto finish = [&](const auto* b, auto narrow) {
        return narrow(apply(arguments.activation, sums[c] + (b == nullptr ? 0.0f : to_float(b[column])), column));
      };
      if (y.type == DType::f16)
        static_cast<float16*>(y.data)[at] = finish(static_cast<const float16*>(arguments.bias), to_float16);
      else
        static_cast<float*>(y.data)[at] =
            finish(static_cast<const float*>(arguments.bias), [](float value) { return value; });
    }
  }
}

inline std::string text_of_launch(const device::RecordedLaunch& launch) { return launch.to_string(); }

}  // namespace detail::gemm

inline bool has_cublaslt() { return !detail::gemm::stand_in_is_missing; }
inline int64_t cublaslt_version() { return has_cublaslt() ? 1 : 0; }
inline std::string describe_cublaslt() { return has_cublaslt() ? "1 (a stand-in)" : "none: it is missing"; }

class CublasLinear {
 public:
  CublasLinear(const LinearLayer& layer, const RowMajorWeights& weights, const void* bias, int algorithm = 0)
      : arguments_{layer.x, weights, bias, layer.activation, layer.y, algorithm, nullptr} {
    detail::gemm::check_cublas_linear(layer, weights, bias);
    if (layer.y.cols == detail::gemm::stand_in_has_none_for || algorithm < 0 ||
        algorithm >= detail::gemm::stand_in_algorithms)
      throw no_cublaslt_algorithm();
  }
  int64_t workspace_bytes() const { return cuts_sums() ? 4 * arguments_.x.rows * arguments_.y.cols : 0; }
  bool cuts_sums() const { return arguments_.algorithm > 0; }

  WARPRANK_HIDDEN void launch(const LaunchMemory& memory, device::Stream stream) const {
    if (arguments_.x.rows == 0) return;
    detail::gemm::CublasArguments arguments = arguments_;
    if (cuts_sums()) arguments.second = static_cast<float*>(memory.workspace);
    const int64_t columns_of_block = detail::gemm::stand_in_threads * detail::gemm::stand_in_columns;
    const int64_t blocks = (arguments_.y.cols + columns_of_block - 1) / columns_of_block;
    device::launch({static_cast<unsigned>(blocks), detail::gemm::stand_in_threads, 0, stream},
                   detail::gemm::cublaslt_stand_in_kernel<>, arguments);
  }

 private:
  detail::gemm::CublasArguments arguments_;
};

}}  // namespace warprank::v0

#endif  // WARPRANK_ON_CUDA
