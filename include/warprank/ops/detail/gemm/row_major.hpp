// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What cuBLASLt takes of a linear layer, without cuBLASLt: its weights as FP16, row after row, and which activations
/// it computes.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/pack_linear.hpp"

namespace warprank { inline namespace v0 {

/// W [out, in] of FP16, row after row, in device memory.
struct RowMajorWeights {
  const float16* data = nullptr;  ///< aligned to 16
  int64_t stride = 0;             ///< elements from row to row

  static constexpr int64_t stride_of(int64_t in) { return (in + 7) / 8 * 8; }  // rows begin at 16 bytes
};

namespace detail::gemm {

/// A finite row-major weight [out, in] and then its bias [out], both FP16, as bytes for device memory. Empty where the
/// bias is above what FP16 holds.
inline std::vector<float16> pack_row_major(Span<const float> weight, Span<const float> bias, int64_t in, int64_t out) {
  const int64_t stride = RowMajorWeights::stride_of(in);
  std::vector<float16> packed(static_cast<size_t>(out * stride + out));
  for (int64_t n = 0; n < out; ++n) {
    for (int64_t k = 0; k < in; ++k) packed[static_cast<size_t>(n * stride + k)] = to_float16(weight[n * in + k]);
    const float b = bias.empty() ? 0.0f : bias[n];
    if (!(std::fabs(b) <= max_float16)) return {};
    packed[static_cast<size_t>(out * stride + n)] = to_float16(b);
  }
  return packed;
}

/// Whether cuBLASLt computes an activation behind its products.
constexpr bool cublaslt_fuses(ActivationKind f) {
  return f == ActivationKind::identity || f == ActivationKind::relu || f == ActivationKind::gelu_tanh;
}

}  // namespace detail::gemm
}}  // namespace warprank::v0
