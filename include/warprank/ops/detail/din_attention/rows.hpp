// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/memory.hpp"

namespace warprank { inline namespace v0 { namespace detail::din {

/// Rows of FP16 in global memory.
struct Rows {
  const float16* data = nullptr;
  int64_t stride = 0;
  bool is_aligned = false;  ///< 8 columns from any multiple of 8 on are loaded by one instruction
};

inline Rows rows_of(const Matrix<const float16>& matrix) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 && matrix.stride % 8 == 0;
  return {matrix.data, matrix.stride, is_aligned};
}

/// Of each column, by FP32.
WARPRANK_DEVICE device::Vector<float16, 8> sum_of(const device::Vector<float16, 8>& a,
                                                  const device::Vector<float16, 8>& b) {
  device::Vector<float16, 8> sum;
  WARPRANK_UNROLL
  for (int i = 0; i < 8; ++i) sum[i] = device::narrow<float16>(device::widen(a[i]) + device::widen(b[i]));
  return sum;
}
/// The same of columns in pairs.
WARPRANK_DEVICE device::Vector<uint32_t, 4> sum_of_pairs(const device::Vector<uint32_t, 4>& a,
                                                         const device::Vector<uint32_t, 4>& b) {
  device::Vector<uint32_t, 4> sum;
  WARPRANK_UNROLL
  for (int i = 0; i < 4; ++i)
    sum[i] = device::pack_halves(device::narrow<float16>(device::widen_low(a[i]) + device::widen_low(b[i])),
                                 device::narrow<float16>(device::widen_high(a[i]) + device::widen_high(b[i])));
  return sum;
}

}}}  // namespace warprank::v0::detail::din
