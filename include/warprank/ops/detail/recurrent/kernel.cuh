// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of ops/recurrent.cuh. A block takes 16 rows through all of their events. A warp has 8 columns of the
/// states, of which each lane has two of two rows, in FP32, as the sums of a product lie; it keeps the weights of these
/// columns of all three gates in registers, so that what a step makes of the sums stays in the lane. States go to the
/// other warps as FP16, in shared memory, where two warps' sums are one fragment A of the next step as they come. Two
/// buffers take turns: a step has one barrier.

#include <cmath>
#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/common/activation.cuh"
#include "warprank/ops/detail/gemm/tile.cuh"
#include "warprank/ops/detail/recurrent/arguments.cuh"
#include "warprank/ops/detail/recurrent/rows.cuh"

namespace warprank { inline namespace v0 { namespace detail::recurrent {

/// 16 bytes of a lane: of 16 by 16 halves.
using Fragment = device::Vector<uint32_t, 4>;

/// Two neighbouring columns of each gate of an event; 0 behind the last, and of an event that is not there.
struct Gates {
  uint32_t pairs[3];
};
template <class Out>
WARPRANK_DEVICE Gates request_gates(const Arguments<Out>& arguments, int64_t event, bool is_there, int column) {
  Gates gates{};
  if (!is_there || column >= arguments.hidden) return gates;
  const float16* from = arguments.gates.data + event * arguments.gates.stride + column;
  WARPRANK_UNROLL
  for (int g = 0; g < 3; ++g, from += arguments.hidden) {
    if (arguments.gates_are_aligned) {
      gates.pairs[g] = device::load(reinterpret_cast<const uint32_t*>(from));
    } else {
      const float16 high = column + 1 < arguments.hidden ? device::load(from + 1) : float16{};
      gates.pairs[g] = device::pack_halves(device::load(from), high);
    }
  }
  return gates;
}

/// Stores two neighbouring columns of a state.
template <class Out>
WARPRANK_DEVICE void store_state(const Arguments<Out>& arguments, int64_t row, int column, float first, float second) {
  if (column >= arguments.hidden) return;
  Out* const to = arguments.y.data + row * arguments.y.stride + column;
  const float values[2] = {first, second};
  device::Vector<Out, 2> narrowed;
  device::narrow_all<Out>(values, narrowed);
  if (arguments.y_is_aligned) return device::store_vector(to, narrowed);
  device::store(to, narrowed[0]);
  if (column + 1 < arguments.hidden) device::store(to + 1, narrowed[1]);
}

/// The next state of a column from its products and the event's gates; `share` of an attention.
template <bool Attends>
WARPRANK_DEVICE float next_state(float before, float r_product, float z_product, float n_product, float r_gate,
                                 float z_gate, float n_gate, float share, bool has_update_gate) {
  const float n = std::tanh(std::fma(sigmoid_of(r_gate + r_product), n_product, n_gate));
  if constexpr (!Attends) return std::fma(sigmoid_of(z_gate + z_product), before - n, n);
  if (has_update_gate) share *= sigmoid_of(z_gate + z_product);
  return std::fma(share, n - before, before);
}

/// For at most 16 `Steps` columns.
template <int Target, int Steps, bool Attends, class Out>
WARPRANK_KERNEL(Steps * 2 * device::warp_size, 8 / Steps)
recurrent_kernel(const WARPRANK_GRID_CONSTANT Arguments<Out> arguments, const Weights* all_weights) {
  using namespace device;  // NOLINT: the vocabulary of kernels
  const int steps = arguments.steps, warp = warp_index(), column = warp * 8 + lane_index() % 4 * 2;

  // Weights are no launch's results.
  const unsigned char* const packed = global(load(&all_weights->packed));
  uint32_t weights[Steps][3][2];
  WARPRANK_UNROLL
  for (int s = 0; s < Steps; ++s) {
    if (s >= steps) break;
    WARPRANK_UNROLL
    for (int g = 0; g < 3; ++g) {
      const auto words = load_vector_constant<2>(reinterpret_cast<const uint32_t*>(packed) +
                                                 (((warp * steps + s) * 3 + g) * warp_size + lane_index()) * 2);
      weights[s][g][0] = words[0], weights[s][g][1] = words[1];
    }
  }
  const auto* const biases =
      reinterpret_cast<const float*>(packed + int64_t{arguments.tiles} * steps * 3 * warp_size * 8);
  Vector<float, 2> bias[3];
  WARPRANK_UNROLL
  for (int g = 0; g < 3; ++g) bias[g] = load_vector_constant<2>(biases + g * arguments.tiles * 8 + column);

  wait_for_previous_launch();
  const int64_t num_rows = number_of_rows<Attends>(arguments);
  const int64_t first_row = int64_t{block_index().x} * rows_of_block;
  if (first_row >= num_rows) return;

  Rows& rows = static_shared<Rows>();
  auto* const states = dynamic_shared<Fragment>() + lane_index();
  [[maybe_unused]] float* const scores = reinterpret_cast<float*>(dynamic_shared<Fragment>() + 2 * steps * warp_size);
  for (int i = warp; i < 2 * steps; i += arguments.tiles) states[i * warp_size] = Fragment{};
  if (warp == 0 && lane_index() < rows_of_block)
    find_events<Attends>(arguments, first_row + lane_index(), num_rows, lane_index(), rows);
  sync_block();
  if constexpr (Attends) {
    weigh_events(arguments, first_row, rows, scores);
    sync_block();
  }

  int64_t longest = 0;
  for (int r = 0; r < rows_of_block; ++r) longest = rows.count[r] > longest ? rows.count[r] : longest;
  const int place[2] = {lane_index() / 4, lane_index() / 4 + 8};
  int64_t event[2], count[2];
  [[maybe_unused]] float top[2], inverse[2];
  Gates next[2];
  WARPRANK_UNROLL
  for (int lower = 0; lower < 2; ++lower) {
    event[lower] = rows.first[place[lower]], count[lower] = rows.count[place[lower]];
    if constexpr (Attends) top[lower] = rows.top[place[lower]], inverse[lower] = rows.inverse[place[lower]];
    next[lower] = request_gates(arguments, event[lower], count[lower] > 0, column);
  }

  float state[4] = {};
  for (int64_t t = 0; t < longest; ++t) {
    const Gates gates[2] = {next[0], next[1]};
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower)
      next[lower] = request_gates(arguments, event[lower] + t + 1, t + 1 < count[lower], column);
    [[maybe_unused]] const int in_chunk = static_cast<int>(t % chunk_events);
    if constexpr (Attends) {
      if (in_chunk == 0 && t > 0) {
        score_chunk(arguments, first_row, t, rows, scores);
        sync_block();
      }
    }

    float sums[3][4];
    WARPRANK_UNROLL
    for (int i = 0; i < 12; ++i) sums[i / 4][i % 4] = bias[i / 4][i % 2];
    const int turn = static_cast<int>(t % 2);
    WARPRANK_UNROLL
    for (int s = 0; s < Steps; ++s) {
      if (s >= steps) break;
      const Fragment f = states[(turn * steps + s) * warp_size];
      const uint32_t a[4] = {f[0], f[1], f[2], f[3]};
      WARPRANK_UNROLL
      for (int g = 0; g < 3; ++g) gemm::multiply_step<Target>(sums[g], a, weights[s][g][0], weights[s][g][1], true);
    }

    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      if (t >= count[lower]) continue;
      float share = 1;
      if constexpr (Attends)
        share = std::exp2(scores[place[lower] * chunk_events + in_chunk] - top[lower]) * inverse[lower];
      const uint32_t(&of)[3] = gates[lower].pairs;
      const int i = lower * 2;
      state[i] = next_state<Attends>(state[i], sums[0][i], sums[1][i], sums[2][i], widen_low(of[0]), widen_low(of[1]),
                                     widen_low(of[2]), share, arguments.has_update_gate);
      state[i + 1] =
          next_state<Attends>(state[i + 1], sums[0][i + 1], sums[1][i + 1], sums[2][i + 1], widen_high(of[0]),
                              widen_high(of[1]), widen_high(of[2]), share, arguments.has_update_gate);
      if constexpr (!Attends) store_state(arguments, event[lower] + t, column, state[i], state[i + 1]);
    }
    Vector<uint32_t, 2> halves{{narrow_pair(state[0], state[1]), narrow_pair(state[2], state[3])}};
    auto* const to = reinterpret_cast<Vector<uint32_t, 2>*>(states + ((1 - turn) * steps + warp / 2) * warp_size);
    to[warp % 2] = halves;
    sync_block();
  }
  if constexpr (Attends) {
    WARPRANK_UNROLL
    for (int lower = 0; lower < 2; ++lower) {
      if (first_row + place[lower] < num_rows)
        store_state(arguments, first_row + place[lower], column, state[2 * lower], state[2 * lower + 1]);
    }
  }
}

}}}  // namespace warprank::v0::detail::recurrent
