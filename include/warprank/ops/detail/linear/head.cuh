// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Layers of one output, whose products are FP32.

#include <cmath>
#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/ops/detail/linear/descriptor.cuh"
#include "warprank/ops/pack_linear.hpp"

namespace warprank { inline namespace v0 { namespace detail::linear {

/// Lanes that compute an output of a head, 8 inputs each at a time.
inline constexpr int head_lanes = PackedLinearLayout::head_step / 8;

/// The sum of a layer of one output, in FP32, by the head_lanes lanes of a row; load(k) gives 8 inputs from k on, 0
/// from the last on.
template <class Load>
WARPRANK_DEVICE float head_sum(const ProductDescriptor& layer, bool exists, Load load) {
  using Lanes = device::Tile<head_lanes>;
  const auto* weights = static_cast<const float*>(layer.weights);
  float sum = 0;
  for (int step = 0; exists && step + Lanes::rank() * 8 < layer.inputs; step += PackedLinearLayout::head_step) {
    const device::Vector<float16, 8> x = load(step + Lanes::rank() * 8);
    WARPRANK_UNROLL
    for (int four = 0; four < 2; ++four) {
      const auto w = device::load_vector_read_only<4>(weights + step + (four * head_lanes + Lanes::rank()) * 4);
      WARPRANK_UNROLL
      for (int i = 0; i < 4; ++i) sum = std::fma(device::widen(x[four * 4 + i]), w[i], sum);
    }
  }
  return Lanes::sum(sum);
}

/// The sums of a tile's rows.
WARPRANK_DEVICE void sum_heads(const ProductDescriptor& layer, const BlockRows& rows, float* sums) {
  const int of_block = device::thread_rank() / head_lanes;
  const gemm::RowSource source = source_of(layer, rows);
  const bool exists = of_block < rows.count;  // all lanes of a row alike
  const float sum = head_sum(layer, exists, [&](int k) { return gemm::load_columns_of_row(source, of_block, k); });
  if (exists && device::Tile<head_lanes>::rank() == 0) sums[of_block] = sum;
}

}}}  // namespace warprank::v0::detail::linear
