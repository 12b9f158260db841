// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/mix_tokens.cuh for any shape and alignment: a block for each row, a warp for each of its tokens,
/// whose values are computed again in every pass over them.

#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/common/row_lanes.cuh"
#include "warprank/ops/detail/common/row_steps.cuh"
#include "warprank/ops/detail/mix_tokens/arguments.cuh"

namespace warprank { inline namespace v0 { namespace detail::mix_tokens {

inline constexpr Block any_block{512, 2};

/// Brings a token into shared memory and norms it there. A lane writes only columns that it brought itself.
WARPRANK_DEVICE void bring_token(const LayerNormOfRow& norm, const RowLanes<1>& lanes, const float16* x,
                                 float16* token) {
  lanes.for_each([&](int64_t column) { token[column] = x[column]; });
  finish_row(
      RowStep(norm), lanes, [&](int64_t column, float(&value)[1]) { value[0] = device::widen(token[column]); },
      [&](int64_t column, const float(&value)[1]) { token[column] = device::narrow<float16>(value[0]); }, [](float) {});
}

template <bool NormsInput, class Out>
WARPRANK_KERNEL(any_block.max_threads, any_block.min_blocks)
mix_any_tokens_kernel(const WARPRANK_GRID_CONSTANT Arguments<Out> arguments, const Vectors* vectors) {
  using namespace device;  // NOLINT: the vocabulary of kernels
  const Vectors learned = *vectors;
  wait_for_previous_launch();
  const int tokens = arguments.tokens, columns = arguments.columns, part = arguments.part;
  const int warps = static_cast<int>(block_dim().x) / warp_size;
  const RowLanes<1> lanes{warp_size, lane_index(), columns, true};
  const LayerNormOfRow input_norm{arguments.input_eps, learned.of_input.gamma, learned.of_input.beta};
  const LayerNormOfRow norm{arguments.eps, learned.of_sums.gamma, learned.of_sums.beta};
  const int64_t num_rows = true_count(arguments.num_rows, arguments.y.rows);
  for (int64_t n = block_index().x; n < num_rows; n += grid_dim().x) {
    const float16* row = arguments.x.data + n * arguments.x.stride;
    if constexpr (NormsInput) {
      auto* const shared = dynamic_shared<float16>();
      for (int t = warp_index(); t < tokens; t += warps)
        bring_token(input_norm, lanes, row + t * columns, shared + t * columns);
      row = shared;
      sync_block();
    }
    for (int t = warp_index(); t < tokens; t += warps) {
      const float16 *const token = row + t * columns, *const parts = row + t * part;
      Out* const y = arguments.y.data + n * arguments.y.stride + t * columns;
      finish_row(
          RowStep(norm), lanes,
          [&](int64_t column, float(&value)[1]) {
            const int source = static_cast<int>(column) / part, within = static_cast<int>(column) - source * part;
            value[0] = widen(token[column]) + widen(parts[source * columns + within]);
          },
          [&](int64_t column, const float(&value)[1]) { y[column] = narrow<Out>(value[0]); }, [](float) {});
    }
    if constexpr (NormsInput) sync_block();  // all have read the row
  }
}

}}}  // namespace warprank::v0::detail::mix_tokens
