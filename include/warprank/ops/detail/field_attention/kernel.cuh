// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/field_attention.cuh. A warp has 16 fields of a row, and one head. It multiplies them with the
/// weights of 16 columns at a time; sums are rounded where they are, in registers, and are fragments of the next
/// product as they come:
///
///     q as A and k as B      scores of 16 fields by all, in registers, over the columns of a head
///     scores as A            weights of the values, after the softmax
///     v as B                 computed transposed, with the weights as A and the fields as B
///
/// Warps of a row give one another only the keys and values of 16 columns, by shared memory, where each lane stores 16
/// bytes for the lane of its number in each warp. Of 16 by 16 weights a lane has 16 bytes, too.

#include <cmath>
#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/target.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/field_attention/arguments.cuh"
#include "warprank/ops/detail/field_attention/warp.cuh"
#include "warprank/ops/detail/gemm/tile.cuh"

namespace warprank { inline namespace v0 { namespace detail::field_attention {

template <int Target, int Blocks, class Out>
WARPRANK_KERNEL((Blocks <= 4 ? 4 : Blocks) * device::warp_size, Blocks <= 4 ? 4 : 2)
field_attention_kernel(const WARPRANK_GRID_CONSTANT Arguments<Out> arguments, const Weights* all_weights) {
  using namespace device;  // NOLINT: the vocabulary of kernels
  const int input_tiles = arguments.input_tiles, output_tiles = arguments.output_tiles;
  const int blocks = arguments.warps_of_row, head = static_cast<int>(block_index().y);

  // Weights are no launch's results.
  const auto* const packed = global(reinterpret_cast<const uint32_t*>(load(&all_weights->packed)));
  const uint32_t* weights =
      packed + (int64_t{head} * 2 * output_tiles * input_tiles * 2 * warp_size + lane_index()) * 4;

  wait_for_previous_launch();
  const int64_t count = true_count(arguments.num_rows, arguments.y.rows);
  const int64_t first_row = int64_t{block_index().x} * arguments.rows_of_block;
  if (first_row >= count) return;
  const int of_block = warp_index() / blocks, first_field = warp_index() % blocks * fields_of_warp;
  const bool has_row = first_row + of_block < count;
  const int64_t row = has_row ? first_row + of_block : count - 1;

  // Fragments of all fields, and keys or values of each warp, of 16 columns and of the next 16.
  auto* const shared = dynamic_shared<Fragment>() + lane_index();
  Fragment* const fields = shared + warp_index() * input_tiles * warp_size;
  const int num_warps = blocks * arguments.rows_of_block;
  Fragment* const exchanges = shared + num_warps * input_tiles * warp_size;
  int turn = 0;
  /// What all warps of the row give: a fragment of each.
  const auto exchange = [&](const Fragment& own) -> const Fragment* {
    Fragment* const of_turn = exchanges + turn * num_warps * warp_size;
    turn ^= 1;
    of_turn[warp_index() * warp_size] = own;
    sync_block();
    return of_turn + of_block * blocks * warp_size;
  };
  bring_fields(arguments, row, first_field, fields);

  float scores[Blocks][2][4] = {};
  for (int chunk = 0; chunk < output_tiles; ++chunk) {
    float sums[2][2][4] = {};
    project<Target, false>(fields, input_tiles, weights, true, sums);
    uint32_t q[4];
    narrow_as_left(sums[1], q);
    const Fragment* const keys = exchange(narrow_as_right(sums[0]));
    WARPRANK_UNROLL
    for (int b = 0; b < Blocks; ++b) {
      if (b >= blocks) break;
      const Fragment k = keys[b * warp_size];
      gemm::multiply_step<Target>(scores[b][0], q, k[0], k[1], true);
      gemm::multiply_step<Target>(scores[b][1], q, k[2], k[3], true);
    }
  }

  uint32_t parts[Blocks][4];
  weigh<Blocks>(arguments.factor, arguments.fields, blocks, scores, parts);
  float totals[4] = {};
  constexpr uint32_t ones = 0x3c003c00;
  WARPRANK_UNROLL
  for (int b = 0; b < Blocks; ++b) {
    if (b >= blocks) break;
    gemm::multiply_step<Target>(totals, parts[b], ones, ones, true);
  }
  const float shares[2] = {1.0f / totals[0], 1.0f / totals[2]};

  const int field = first_field + lane_index() / 4;
  Out* const y =
      arguments.y.data + row * arguments.y.stride + (int64_t{field} * arguments.heads + head) * arguments.head_dim;
  for (int chunk = 0; chunk < output_tiles; ++chunk) {
    float made[2][2][4] = {};
    project<Target, true>(fields, input_tiles, weights, arguments.has_residual, made);
    const Fragment* const values = exchange(narrow_as_right(made[0]));
    float sums[2][4] = {};
    WARPRANK_UNROLL
    for (int b = 0; b < Blocks; ++b) {
      if (b >= blocks) break;
      const Fragment v = values[b * warp_size];
      gemm::multiply_step<Target>(sums[0], parts[b], v[0], v[1], true);
      gemm::multiply_step<Target>(sums[1], parts[b], v[2], v[3], true);
    }
    float results[8];  // four columns of a field, and of the eighth behind it
    WARPRANK_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int half = i % 4 / 2, at = i / 4 * 2 + i % 2;
      results[i] = std::fma(sums[half][at], shares[i / 4], made[1][half][at]);
    }
    activate<8, 0>(arguments.activation, results, 0, 1);
    const int column = chunk * tile + lane_index() % 4 * 4;
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      if (!has_row || field + lower * 8 >= arguments.fields) continue;
      const float of_field[4] = {results[4 * lower], results[4 * lower + 1], results[4 * lower + 2],
                                 results[4 * lower + 3]};
      store_columns(y + int64_t{lower} * 8 * arguments.heads * arguments.head_dim + column, of_field,
                    arguments.head_dim - column, arguments.y_is_aligned);
    }
  }
}

}}}  // namespace warprank::v0::detail::field_attention
