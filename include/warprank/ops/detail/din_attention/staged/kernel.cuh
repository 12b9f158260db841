// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The staged DIN kernel, for all networks that the chained one does not take: outputs go from layer to layer through
/// shared memory. A result depends on its item and its user's history alone: columns of a product do not mix, and sums
/// over events are taken in an order that only their number decides. So an item has the same bits whatever is computed
/// beside it, and however items are divided among blocks.

#include <cmath>
#include <cstdint>
#include <limits>

#include "warprank/core/dtype.hpp"
#include "warprank/device/collectives.hpp"
#include "warprank/device/half.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/common/activation.cuh"
#include "warprank/ops/detail/common/item_units.cuh"
#include "warprank/ops/detail/din_attention/staged/descriptor.cuh"
#include "warprank/ops/detail/din_attention/staged/network.cuh"
#include "warprank/ops/detail/gemm/epilogue.cuh"

namespace warprank { inline namespace v0 { namespace detail::din {

inline constexpr float max_score = std::numeric_limits<float>::max();

/// What is brought into shared memory; all threads of the block call.
struct Loads : Block {
  using Block::Block;

  /// Weights that every task of the block reads.
  WARPRANK_DEVICE void copy_later_weights() const {
    if (p.later < 0) return;
    using Bytes = device::Vector<uint32_t, 4>;
    Bytes* to = at<Bytes>(p.later);
    for (int layer = 1; layer < d.num_hidden; ++layer) {
      const int count = d.hidden[layer - 1].padded * d.hidden[layer].padded / 8;
      const auto* from = reinterpret_cast<const uint32_t*>(d.hidden[layer].weights);
      for (int i = device::thread_rank(); i < count; i += block_threads)
        to[i] = device::load_vector_read_only<4>(from + i * 4);
      to += count;
    }
  }

  /// Rows behind the last event, to a whole tile, and columns behind the last are zeros.
  WARPRANK_DEVICE void load_history(int64_t first_row, int count) const {
    constexpr int vector = 8, at_once = 4;  // loads in flight
    const int per_row = d.padded_dim / vector, stride = row_stride();
    const int total = (count + tile_events - 1) / tile_events * tile_events * per_row;
    float16* to = at<float16>(p.history);
    for (int begin = device::thread_rank(); begin < total; begin += block_threads * at_once) {
      device::Vector<float16, vector> pieces[at_once], added[at_once];
      WARPRANK_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const int piece = begin + i * block_threads, row = piece / per_row, column = piece % per_row * vector;
        const bool exists = piece < total && row < count;
        pieces[i] = load_piece(d.k, first_row + row, column, exists);
        if (d.added.data != nullptr) added[i] = load_piece(d.added, first_row + row, column, exists);
      }
      WARPRANK_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const int piece = begin + i * block_threads;
        if (piece >= total) break;
        if (d.added.data != nullptr) pieces[i] = sum_of(pieces[i], added[i]);
        device::store_vector(&to[piece / per_row * stride + piece % per_row * vector], pieces[i]);
      }
    }
  }

  WARPRANK_DEVICE device::Vector<float16, 8> load_piece(const Rows& rows, int64_t row, int column, bool exists) const {
    const float16* from = rows.data + row * rows.stride + column;
    if (exists && rows.is_aligned && column + 8 <= d.dim) return device::load_vector<8>(from);
    device::Vector<float16, 8> piece;
    WARPRANK_UNROLL
    for (int i = 0; i < 8; ++i) {
      piece[i] = float16{};
      if (exists && column + i < d.dim) piece[i] = device::load(from + i);
    }
    return piece;
  }

  WARPRANK_DEVICE void load_queries(const Group& group) const {
    float* to = at<float>(p.query);
    for (int i = device::thread_rank(); i < group.size * d.padded_dim; i += block_threads) {
      const int item = i / d.padded_dim, column = i % d.padded_dim;
      const float16* from = d.q.data + (unit.first_item + group.first + item) * d.q.stride + column;
      to[i] = column < d.dim ? device::widen(device::load(from)) : 0.0f;
    }
  }
};

/// From scores to y.
struct Pooling : Block {
  using Block::Block;

  WARPRANK_DEVICE void store_value(int item, int column, float value) const {
    const int64_t place = (unit.first_item + item) * d.y.stride + column;
    if (d.y.is_half)
      device::store(static_cast<float16*>(d.y.data) + place, device::narrow<float16>(value));
    else
      device::store(static_cast<float*>(d.y.data) + place, value);
  }

  WARPRANK_DEVICE void store_zeros() const {
    for (int i = device::thread_rank(); i < unit.num_items * d.dim; i += block_threads)
      store_value(i / d.dim, i % d.dim, 0.0f);
  }

  /// Turns an item's scores into weights, by one warp. A softmax goes on from chunk to chunk: it keeps the largest
  /// score and the sum of exponentials relative to it, and what they, and the sums of rows, are multiplied by when a
  /// larger one comes.
  WARPRANK_DEVICE void weigh(int item, const Group& group, const Chunk& chunk) const {
    float* const scores = at<float>(p.scores) + item;
    const int lane = device::lane_index();
    if (d.normalization == Normalization::none) return;
    if (d.normalization == Normalization::sigmoid) {
      for (int t = lane; t < chunk.size; t += device::warp_size)
        scores[t * max_items] = sigmoid_of(scores[t * max_items]);
      return;
    }
    const auto finite = [](float score) {
      return score > max_score ? max_score : score < -max_score ? -max_score : score;
    };
    float* const state = softmax_state(group.first + item);
    const float top_before = chunk.is_first ? -max_score : state[0];
    float top = top_before;
    for (int t = lane; t < chunk.size; t += device::warp_size) {
      const float score = finite(scores[t * max_items]);
      top = top < score ? score : top;
    }
    top = device::Warp::max(top);
    float sum = 0;
    for (int t = lane; t < chunk.size; t += device::warp_size) {
      const float weight = std::exp(finite(scores[t * max_items]) - top);
      scores[t * max_items] = weight;
      sum += weight;
    }
    sum = device::Warp::sum(sum);
    device::sync_warp();  // every lane has read the largest score
    if (lane != 0) return;
    const float factor = std::exp(top_before - top);
    state[1] = chunk.is_first ? sum : std::fma(state[1], factor, sum);
    state[0] = top;
    state[2] = factor;
  }

  /// Largest score, sum of exponentials, factor for the sums before.
  WARPRANK_DEVICE float* softmax_state(int item_of_unit) const { return at<float>(p.softmax) + item_of_unit * 3; }

  WARPRANK_DEVICE int num_parts() const {
    const int parts = block_threads / (d.padded_dim / 2);
    return parts < block_warps ? parts : block_warps;
  }

  /// Sums of weighted rows, where a thread has two columns of all items and every num_parts()-th event.
  WARPRANK_DEVICE void add_partial_sums(const Group& group, const Chunk& chunk) const {
    const int pairs = d.padded_dim / 2, part = device::thread_rank() / pairs,
              column = device::thread_rank() % pairs * 2;
    if (part >= num_parts()) return;
    const float16* const history = at<float16>(p.history) + column;
    float sums[max_items][2] = {};
    for (int t = part; t < chunk.size; t += num_parts()) {
      const float16* const event = history + t * row_stride();
      const uint32_t both = *reinterpret_cast<const uint32_t*>(event);
      const float low = device::widen(device::low_half(both)), high = device::widen(device::high_half(both));
      const float* const weights = at<float>(p.scores) + t * max_items;
      WARPRANK_UNROLL
      for (int item = 0; item < max_items; ++item) {
        if (item >= group.size) break;
        sums[item][0] = std::fma(weights[item], low, sums[item][0]);
        sums[item][1] = std::fma(weights[item], high, sums[item][1]);
      }
    }
    WARPRANK_UNROLL
    for (int item = 0; item < max_items; ++item) {
      if (item >= group.size) break;
      float* to = at<float>(p.staging) + (part * max_items + item) * d.padded_dim + column;
      *reinterpret_cast<device::Vector<float, 2>*>(to) = {{sums[item][0], sums[item][1]}};
    }
  }

  /// Adds the parts up, and stores them behind the last chunk.
  WARPRANK_DEVICE void combine(const Group& group, const Chunk& chunk) const {
    const bool is_softmax = d.normalization == Normalization::softmax;
    for (int i = device::thread_rank(); i < group.size * d.dim; i += block_threads) {
      const int item = i / d.dim, column = i % d.dim;
      float sum = 0;
      for (int part = 0; part < num_parts(); ++part)
        sum += at<float>(p.staging)[(part * max_items + item) * d.padded_dim + column];
      float& before = at<float>(p.sums)[(group.first + item) * d.padded_dim + column];
      const float* const state = softmax_state(group.first + item);
      if (!chunk.is_first) sum = is_softmax ? std::fma(before, state[2], sum) : before + sum;
      if (chunk.is_last)
        store_value(group.first + item, column, is_softmax ? sum / state[1] : sum);
      else
        before = sum;
    }
  }
};

template <int Target>
WARPRANK_DEVICE void attend(Header& header) {
  const Loads loads(header);
  const Network<Target> network(header);
  const Pooling pooling(header);
  const ItemUnit& unit = header.work.unit;
  const Partition& p = header.descriptor.partition;
  for (int64_t first = 0; first < unit.num_events; first += p.events) {
    const int64_t left = unit.num_events - first;
    const Chunk chunk{static_cast<int>(left < p.events ? left : p.events), first == 0, left <= p.events};
    loads.load_history(unit.first_event + first, chunk.size);
    for (int item = 0; item < unit.num_items; item += p.items) {
      const int items = unit.num_items - item;
      const Group group{item, items < p.items ? items : p.items};
      if (!network.is_kept(chunk)) loads.load_queries(group);
      device::sync_block();
      network.score(group, chunk);
      device::sync_block();
      if (device::warp_index() < group.size) pooling.weigh(device::warp_index(), group, chunk);
      device::sync_block();
      pooling.add_partial_sums(group, chunk);
      device::sync_block();
      pooling.combine(group, chunk);
    }
  }
}

/// Rows of the grid are histories.
template <int Target>
WARPRANK_KERNEL(block_threads, 2)
din_staged_kernel(const Descriptor* descriptors) {
  Header& header = *reinterpret_cast<Header*>(device::dynamic_shared<unsigned char>());
  const Descriptor& d = header.descriptor;
  copy_descriptor<block_threads>(header.descriptor, &descriptors[device::block_index().y]);
  device::sync_block();
  Loads(header).copy_later_weights();
  device::wait_for_previous_launch();
  if (device::thread_rank() == 0)
    begin_items(d.axes, header.work, d.partition.items, d.partition.unit_items, device::block_index().x,
                device::grid_dim().x);
  for (;;) {
    device::sync_block();  // the unit before is not needed any more
    if (device::thread_rank() == 0) next_items(d.axes, header.work);
    device::sync_block();
    if (header.work.unit.num_items == 0) return;
    if (header.work.unit.num_events > 0)
      attend<Target>(header);
    else
      Pooling(header).store_zeros();
  }
}

}}}  // namespace warprank::v0::detail::din
