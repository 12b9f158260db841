// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/mix_tokens.cuh for aligned rows and tokens of 2^k or 3 2^k columns, up to 1,024: a block for each
/// row, a few lanes of a warp for each of its tokens, whose values stay in registers. Where the row is normed before it
/// is mixed, it is in shared memory as FP16, each token normed by the lanes that brought it: so one trip to memory and
/// one barrier lie between launch and store. Else tokens and the parts of others are read where they are.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/approximate.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/common/row_lanes.cuh"
#include "warprank/ops/detail/mix_tokens/arguments.cuh"

namespace warprank { inline namespace v0 { namespace detail::mix_tokens {

/// Four columns as two pairs of halves.
inline constexpr int vector_size = row_vector_size;
using Pairs = device::Vector<uint32_t, 2>;

/// How the columns of a token are divided: each lane has `steps` vectors, `lanes` vectors apart.
struct TokenLanes {
  int lanes = 0;  // a power of two; 0: not divided so
  int steps = 0;
  float inverse_columns = 0, inverse_part = 0;
};

WARPRANK_DEVICE void widen_pairs(const Pairs& pairs, float (&values)[vector_size]) {
  values[0] = device::widen_low(pairs[0]);
  values[1] = device::widen_high(pairs[0]);
  values[2] = device::widen_low(pairs[1]);
  values[3] = device::widen_high(pairs[1]);
}
WARPRANK_DEVICE Pairs narrow_pairs(const float (&values)[vector_size]) {
  return {device::narrow_pair(values[0], values[1]), device::narrow_pair(values[2], values[3])};
}
WARPRANK_DEVICE const Pairs* pairs_at(const float16* address) { return reinterpret_cast<const Pairs*>(address); }

/// The layer norm of a token. `first` is the lane's first column, and `stride` leads to its next vector.
template <int Steps>
WARPRANK_DEVICE void norm_token(const TokenLanes& division, int first, int stride, float eps,
                                const NormVectors* learned, float (&values)[Steps][vector_size]) {
  using device::load_vector_read_only;
  const NormVectors vectors = *learned;
  const auto mean_of_lanes = [&](float value) {
    WARPRANK_UNROLL
    for (int distance = device::warp_size / 2; distance > 0; distance /= 2) {
      const float other = device::shuffle_xor(device::full_warp, value, distance);
      if (distance < division.lanes) value += other;
    }
    return value * division.inverse_columns;
  };
  float sum = 0, squares = 0;
  WARPRANK_UNROLL
  for (const auto& v : values) sum += (v[0] + v[1]) + (v[2] + v[3]);
  const float mean = mean_of_lanes(sum);
  WARPRANK_UNROLL
  for (auto& v : values) {
    WARPRANK_UNROLL
    for (float& value : v) {
      value -= mean;
      squares += value * value;
    }
  }
  const float scale = device::fast_reciprocal_sqrt(mean_of_lanes(squares) + eps);
  WARPRANK_UNROLL
  for (int i = 0; i < Steps; ++i) {
    const auto factor = load_vector_read_only<vector_size>(vectors.gamma + first + i * stride);
    const auto term = load_vector_read_only<vector_size>(vectors.beta + first + i * stride);
    WARPRANK_UNROLL
    for (int j = 0; j < vector_size; ++j) values[i][j] = values[i][j] * scale * factor[j] + term[j];
  }
}

/// Registers hold what is in flight: up to 64, 80, 128 or 255 numbers of a thread.
constexpr Block block_of(int steps) {
  return steps <= 3 ? Block{512, 2} : steps <= 4 ? Block{256, 3} : steps <= 6 ? Block{256, 2} : Block{256, 1};
}

template <bool NormsInput, int Steps>
WARPRANK_KERNEL(block_of(Steps).max_threads, block_of(Steps).min_blocks)
mix_tokens_kernel(const WARPRANK_GRID_CONSTANT Arguments<float16> arguments,
                  const WARPRANK_GRID_CONSTANT TokenLanes division, const Vectors* vectors) {
  using namespace device;  // NOLINT: the vocabulary of kernels
  wait_for_previous_launch();
  const int tokens = arguments.tokens, columns = arguments.columns, part = arguments.part;
  const int first = rank_in_row(division.lanes) * vector_size, stride = division.lanes * vector_size;
  const int lanes_bit = first_bit(static_cast<uint32_t>(division.lanes));
  const int first_token = thread_rank() >> lanes_bit;
  const int tokens_at_once = static_cast<int>(block_dim().x) >> lanes_bit;

  const int64_t num_rows = true_count(arguments.num_rows, arguments.y.rows);
  for (int64_t n = block_index().x; n < num_rows; n += grid_dim().x) {
    const float16* row = arguments.x.data + n * arguments.x.stride;
    float values[Steps][vector_size];
    if constexpr (NormsInput) {
      auto* const shared = dynamic_shared<float16>();
      for (int t = first_token; t - first_token < tokens; t += tokens_at_once) {
        const int token = (t < tokens ? t : tokens - 1) * columns + first;  // lanes without a token repeat the last
        Pairs pairs[Steps];
        WARPRANK_UNROLL
        for (int i = 0; i < Steps; ++i)
          pairs[i] = load_vector_once<2>(reinterpret_cast<const uint32_t*>(row + token + i * stride));
        WARPRANK_UNROLL
        for (int i = 0; i < Steps; ++i) widen_pairs(pairs[i], values[i]);
        norm_token(division, first, stride, arguments.input_eps, &vectors->of_input, values);
        if (t >= tokens) continue;
        WARPRANK_UNROLL
        for (int i = 0; i < Steps; ++i)
          *reinterpret_cast<Pairs*>(shared + token + i * stride) = narrow_pairs(values[i]);
      }
      row = shared;
      sync_block();
    }
    for (int t = first_token; t - first_token < tokens; t += tokens_at_once) {
      const int known = t < tokens ? t : tokens - 1, token = known * columns + first;
      WARPRANK_UNROLL
      for (int i = 0; i < Steps; ++i) {
        const int column = first + i * stride;
        // Exact, since a part has 2^k or 3 2^k columns.
        const auto source = static_cast<int>(static_cast<float>(column) * division.inverse_part);
        float mixed[vector_size];
        widen_pairs(*pairs_at(row + token + i * stride), values[i]);
        widen_pairs(*pairs_at(row + known * part + column + source * (columns - part)), mixed);
        WARPRANK_UNROLL
        for (int j = 0; j < vector_size; ++j) values[i][j] += mixed[j];
      }
      norm_token(division, first, stride, arguments.eps, &vectors->of_sums, values);
      if (t >= tokens) continue;
      float16* const y = arguments.y.data + n * arguments.y.stride + token;
      WARPRANK_UNROLL
      for (int i = 0; i < Steps; ++i)
        store_vector<2>(reinterpret_cast<uint32_t*>(y + i * stride), narrow_pairs(values[i]));
    }
    if constexpr (NormsInput) sync_block();  // all have read the row
  }
}

}}}  // namespace warprank::v0::detail::mix_tokens
