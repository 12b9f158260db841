// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What happens to two neighbouring sums of a layer before they are stored, as gemm/epilogue.cuh says. What is added
/// to the sums is loaded before these are known.
///
/// Activations are in place, two or three times in a kernel. With all but relu and sigmoid in one function that is
/// called, kernels of sm_80 have 21 % (split) to 27 % less code; but a launch jumps over kinds that it has not, and
/// would call for every value of one that it has.

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "warprank/device/half.hpp"
#include "warprank/ops/detail/gemm/epilogue.cuh"

namespace warprank { inline namespace v0 { namespace detail::mlp {

/// f(i) for those of two columns that are below the width. The first is an even one, here and below.
template <class F>
WARPRANK_DEVICE void for_each_column(const gemm::Epilogue& epilogue, int column, F f) {
  WARPRANK_UNROLL
  for (int i = 0; i < 2; ++i)
    if (column + i < epilogue.width) f(i);
}

/// Adds all that is added to the sums before the activation, but for the bias. `bias_row` has what bias_row_of gives
/// for the row.
WARPRANK_DEVICE void add_operands(const gemm::Epilogue& epilogue, int64_t row, const int64_t* bias_row, int column,
                                  float (&added)[2]) {
  const auto add = [&](const gemm::Operand<const void>& from, int64_t from_row) {
    for_each_column(epilogue, column, [&](int i) { added[i] += gemm::load_element(from, from_row, column + i); });
  };
  if (epilogue.row_bias.data != nullptr) add(epilogue.row_bias, *bias_row);
  if (epilogue.residual_first) add(epilogue.residual, row);
}

/// Identity or relu.
WARPRANK_DEVICE void activate_simple(const gemm::Epilogue& epilogue, float (&values)[2]) {
  if (epilogue.activation.kind != ActivationKind::relu) return;
  values[0] = values[0] < 0 ? 0.0f : values[0];
  values[1] = values[1] < 0 ? 0.0f : values[1];
}

/// Two activations as FP16, 0 where there are none: infinity and NaN stay, but never as two halves of ones alone.
WARPRANK_DEVICE uint32_t pack_activations(int width, int column, float (&values)[2]) {
  if (column + 1 >= width) values[1] = 0;  // also in a row of infinities
  if (column >= width) values[0] = 0;
  if (std::fabs(values[0]) > FLT_MAX || std::fabs(values[1]) > FLT_MAX)
    return device::pack_halves(device::narrow<float16>(values[0]), device::narrow<float16>(values[1]));
  return device::narrow_pair(values[0], values[1]);
}

/// Stores y of what the activation gave.
WARPRANK_DEVICE void finish_pair(const gemm::Epilogue& epilogue, int64_t row, int column, float (&values)[2]) {
  const auto each = [&](auto f) { for_each_column(epilogue, column, f); };
  if (epilogue.multiply.data != nullptr)
    each([&](int i) { values[i] *= gemm::load_element(epilogue.multiply, row, column + i); });
  if (epilogue.residual.data != nullptr && !epilogue.residual_first)
    each([&](int i) { values[i] += gemm::load_element(epilogue.residual, row, column + i); });
  const auto store = [&](auto* data) {
    using Value = std::remove_reference_t<decltype(*data)>;
    auto* const to = data + row * epilogue.y.stride + column;
    const device::Vector<Value, 2> pair{{device::narrow<Value>(values[0]), device::narrow<Value>(values[1])}};
    if (epilogue.y.is_aligned && column + 1 < epilogue.width)
      device::store_vector(to, pair);
    else
      each([&](int i) { device::store(to + i, pair[i]); });
  };
  if (epilogue.y.is_half)
    store(static_cast<float16*>(epilogue.y.data));
  else
    store(static_cast<float*>(epilogue.y.data));
}

}}}  // namespace warprank::v0::detail::mlp
