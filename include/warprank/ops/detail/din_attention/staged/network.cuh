// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The scoring network of the DIN kernel. Events are the columns of its products, 8 to a tile, so that little is lost
/// to padding:
///
///     layer 0    [hidden 0, dim] x [dim, events]                 W(q) of an item x the history, both in shared memory
///     layer i    [hidden i, hidden i-1] x [hidden i-1, events]   packed weights x what the warp has just computed
///     scores     the last layer's columns times the head's weights, in FP32

#include <cmath>
#include <cstdint>

#include "warprank/core/dtype.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/mma.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/common/activation.cuh"
#include "warprank/ops/detail/din_attention/staged/descriptor.cuh"
#include "warprank/ops/detail/gemm/tile.cuh"

namespace warprank { inline namespace v0 { namespace detail::din {

template <int Target>
struct Network : Block {
  using Block::Block;

  /// Scores of all events of the chunk for all items of the group; all threads of the block call.
  WARPRANK_DEVICE void score(const Group& group, const Chunk& chunk) const {
    const int tiles = (chunk.size + tile_events - 1) / tile_events;
    // As few tasks as there may be, but work for every warp.
    const int least = (tiles + p.tiles - 1) / p.tiles, wanted = p.warps / group.size;
    const int per_item = wanted <= least ? least : wanted < tiles ? wanted : tiles;
    const int tasks = per_item * group.size, parts = (d.hidden[0].padded + p.fold_rows - 1) / p.fold_rows;
    for (int first_task = 0; first_task < tasks; first_task += p.warps) {
      const int number = first_task + device::warp_index(), part = number % per_item;
      const int first_tile = part * tiles / per_item;
      const Task task{device::warp_index() < p.warps && number < tasks, number / per_item, first_tile,
                      (part + 1) * tiles / per_item - first_tile};
      float scores[2 * n_tiles] = {};
      for (int step = 0; step < parts + d.num_hidden - 1; ++step) {
        const bool is_first = step < parts;
        const int layer = is_first ? 0 : step - parts + 1, width = d.hidden[layer].padded;
        const int begin = is_first ? step * p.fold_rows : 0;
        const int end = is_first && begin + p.fold_rows < width ? begin + p.fold_rows : width;
        if (is_first && (parts > 1 || first_task == 0) && !is_kept(chunk)) {
          if (step > 0 || first_task > 0) device::sync_block();  // the rows before are not needed any more
          fold(group, begin, end);
          device::sync_block();
        }
        if (task.exists) run_layer(task, layer, begin, end, scores);
      }
      if (task.exists) store_scores(task, scores);
    }
  }

  /// Whether a unit of one group still has what it folded for the chunk before, where that is the whole layer.
  WARPRANK_DEVICE bool is_kept(const Chunk& chunk) const {
    return !chunk.is_first && unit.num_items <= p.items && p.fold_rows >= d.hidden[0].padded;
  }

 private:
  static constexpr int m_tiles = policy<Target>.output_tiles, n_tiles = policy<Target>.event_tiles;

  /// What a warp takes through all layers: neighbouring tiles of 8 events of one item.
  struct Task {
    bool exists;
    int item, first_tile, num_tiles;
  };

  /// W(q) and c(q) of every item of the group, for rows [begin, end) of the first layer: 8 lanes take a row, 4 columns
  /// each at a time, and what they load serves all items.
  WARPRANK_DEVICE void fold(const Group& group, int begin, int end) const {
    using Lanes = device::Tile<8>;
    using Four = device::Vector<float, 4>;
    const int stride = row_stride();
    for (int row = begin + device::thread_rank() / Lanes::size; row < end; row += block_threads / Lanes::size) {
      float sums[max_items] = {};
      for (int column = Lanes::rank() * 4; column < d.padded_dim; column += Lanes::size * 4) {
        const int64_t element = static_cast<int64_t>(row) * d.padded_dim + column;
        const Four of_event = device::load_vector_read_only<4>(d.event_weights + element);
        const auto pair = device::load_vector_read_only<8>(d.pair_weights + element * 2);
        WARPRANK_UNROLL
        for (int item = 0; item < max_items; ++item) {
          if (item >= group.size) break;
          const Four q = *at<const Four>(p.query + (item * d.padded_dim + column) * 4);
          device::Vector<float16, 4> folded;
          WARPRANK_UNROLL
          for (int i = 0; i < 4; ++i) {
            folded[i] = device::narrow<float16>(std::fma(device::widen(pair[i]), q[i], of_event[i]));
            sums[item] = std::fma(device::widen(pair[4 + i]), q[i], sums[item]);
          }
          float16* to = at<float16>(p.folded) + (item * p.fold_rows + row - begin) * stride + column;
          *reinterpret_cast<device::Vector<float16, 4>*>(to) = folded;
        }
      }
      const float bias = row < d.hidden[0].width ? device::load_read_only(d.hidden[0].bias + row) : 0.0f;
      WARPRANK_UNROLL
      for (int item = 0; item < max_items; ++item) {
        if (item >= group.size) break;
        const float sum = Lanes::sum(sums[item]) + bias;
        if (Lanes::rank() == 0) at<float>(p.constants)[item * d.hidden[0].padded + row] = sum;
      }
    }
  }

  /// Outputs [begin, end) of a layer for the task's events: staged for the next layer, or added to the scores.
  WARPRANK_DEVICE void run_layer(const Task& task, int index, int begin, int end, float (&scores)[2 * n_tiles]) const {
    const HiddenLayer& layer = d.hidden[index];
    const int lane = device::lane_index(), group_of_lane = lane / 4, pair = lane % 4 * 2;
    const bool is_last = index + 1 == d.num_hidden;
    float16* const staging = at<float16>(p.staging + device::warp_index() * p.staging_bytes);
    float16* const staged[2] = {staging, staging + p.tiles * d.hidden[0].padded * tile_events};
    float16* const out = index % 2 == 0 ? staged[0] : staged[1];
    const float16* const in = index % 2 == 0 ? staged[1] : staged[0];
    device::sync_warp();  // what is staged has been written, and what was staged before has been read

    for (int row = begin; row < end; row += m_tiles * 16) {
      const int num_m = (end - row) / 16;
      float sums[m_tiles][n_tiles][4];
      WARPRANK_UNROLL
      for (int m = 0; m < m_tiles; ++m) {
        WARPRANK_UNROLL
        for (int i = 0; i < 4; ++i) {
          float bias = 0;
          if (i % 2 == 0 && m < num_m) bias = bias_of(task, index, row + m * 16 + group_of_lane + i / 2 * 8);
          WARPRANK_UNROLL
          for (int n = 0; n < n_tiles; ++n) sums[m][n][i] = i % 2 == 0 ? bias : sums[m][n][i - 1];
        }
      }

      if (index == 0) {
        const int stride = row_stride();
        const float16* folded = at<float16>(p.folded) + (task.item * p.fold_rows + row - begin) * stride;
        multiply(
            sums, num_m, task.num_tiles, d.dim,
            [&](uint32_t(&a)[4], int m, int k) { gemm::load_rows(a, folded + m * 16 * stride + k, stride); },
            [&](uint32_t(&b)[4], int n, int k) {
              const int tile = task.first_tile + tile_of_lane(n, task);
              const int event = tile * tile_events + lane % 8;
              device::load_matrices(b, at<float16>(p.history) + event * stride + k + lane / 8 % 2 * 8);
            });
      } else {
        const int inputs = d.hidden[index - 1].padded;
        multiply(
            sums, num_m, task.num_tiles, d.hidden[index - 1].width,
            [&](uint32_t(&a)[4], int m, int k) {
              const auto packed = load_packed(index, (row / 16 + m) * (inputs / 16) + k / 16);
              a[0] = packed[0], a[1] = packed[2], a[2] = packed[1], a[3] = packed[3];
            },
            [&](uint32_t(&b)[4], int n, int k) {
              const int input = tile_of_lane(n, task) * inputs + k + lane % 16;
              device::load_matrices<true>(b, in + input * tile_events);
            });
      }

      WARPRANK_UNROLL
      for (int m = 0; m < m_tiles; ++m) {
        if (m >= num_m) break;
        WARPRANK_UNROLL
        for (int upper = 0; upper < 2; ++upper) {
          const int output = row + m * 16 + upper * 8 + group_of_lane;
          const float weight = is_last && output < layer.width ? device::load_read_only(d.head + output) : 0.0f;
          WARPRANK_UNROLL
          for (int n = 0; n < n_tiles; n += 2) {
            if (n >= task.num_tiles) break;
            float values[4];
            WARPRANK_UNROLL
            for (int i = 0; i < 4; ++i) values[i] = sums[m][n + i / 2][upper * 2 + i % 2];
            activate<4, 0>(layer.activation, values, output, layer.width);
            WARPRANK_UNROLL
            for (int i = 0; i < 4; i += 2) {
              if (is_last) {
                scores[2 * n + i] = std::fma(weight, values[i], scores[2 * n + i]);
                scores[2 * n + i + 1] = std::fma(weight, values[i + 1], scores[2 * n + i + 1]);
              } else if (n + i / 2 < task.num_tiles) {
                float16* to = out + ((n + i / 2) * layer.padded + output) * tile_events + pair;
                *reinterpret_cast<uint32_t*>(to) =
                    device::pack_halves(device::narrow<float16>(values[i]), device::narrow<float16>(values[i + 1]));
              }
            }
          }
        }
      }
    }
  }

  /// sums += A B; load_a gives a tile of 16 outputs, load_b two tiles of events, for 16 inputs from k on.
  template <class LoadA, class LoadB>
  WARPRANK_DEVICE void multiply(float (&sums)[m_tiles][n_tiles][4], int num_m, int num_n, int inputs, LoadA load_a,
                                LoadB load_b) const {
    for (int k = 0; k < inputs; k += 16) {
      uint32_t b[n_tiles / 2][4] = {};
      WARPRANK_UNROLL
      for (int n = 0; n < n_tiles; n += 2) {
        if (n < num_n) load_b(b[n / 2], n, k);
      }
      WARPRANK_UNROLL
      for (int m = 0; m < m_tiles; ++m) {
        if (m >= num_m) break;
        uint32_t a[4];
        load_a(a, m, k);
        WARPRANK_UNROLL
        for (int n = 0; n < n_tiles; ++n) {
          if (n < num_n)
            gemm::multiply_step<Target>(sums[m][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1], k + 8 < inputs);
        }
      }
    }
  }

  /// Of the tiles n and n + 1, the one whose rows the lane addresses; the last one where there is none.
  WARPRANK_DEVICE int tile_of_lane(int n, const Task& task) const {
    const int tile = n + device::lane_index() / 16;
    return tile < task.num_tiles ? tile : task.num_tiles - 1;
  }

  WARPRANK_DEVICE float bias_of(const Task& task, int layer, int output) const {
    if (layer == 0) return at<const float>(p.constants)[task.item * d.hidden[0].padded + output];
    return device::load_read_only(d.hidden[layer].bias + output);
  }

  WARPRANK_DEVICE device::Vector<uint32_t, 4> load_packed(int layer, int fragment) const {
    if (p.later < 0) {
      const auto* from = reinterpret_cast<const uint32_t*>(d.hidden[layer].weights);
      return device::load_vector_read_only<4>(from + (fragment * device::warp_size + device::lane_index()) * 4);
    }
    if (layer == 2) fragment += d.hidden[0].padded * d.hidden[1].padded / 256;
    return at<const device::Vector<uint32_t, 4>>(p.later)[fragment * device::warp_size + device::lane_index()];
  }

  /// Adds up what the lanes have of each event's score.
  WARPRANK_DEVICE void store_scores(const Task& task, float (&scores)[2 * n_tiles]) const {
    const float bias = device::load_read_only(d.head_bias);
    WARPRANK_UNROLL
    for (int i = 0; i < 2 * n_tiles; ++i) {
      WARPRANK_UNROLL
      for (int distance = 16; distance >= 4; distance /= 2)
        scores[i] += device::shuffle_xor(device::full_warp, scores[i], distance);
      if (i / 2 >= task.num_tiles || device::lane_index() >= 4) continue;
      const int event = (task.first_tile + i / 2) * tile_events + device::lane_index() * 2 + i % 2;
      at<float>(p.scores)[event * max_items + task.item] = (scores[i] + bias) * d.factor;
    }
  }
};

}}}  // namespace warprank::v0::detail::din
