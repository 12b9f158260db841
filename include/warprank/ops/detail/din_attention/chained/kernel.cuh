// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The chained DIN kernel: networks of two hidden layers whose outputs go from layer to layer in registers.
///
/// A block of 8 warps takes a unit, up to 8 items of one parent, and goes through it in four phases:
///
///     load      weights by asynchronous copies before anything is waited for; then every warp finds the unit (one trip
///               to memory), and queries and history follow
///     c(q)      16 outputs of the first layer for each warp, with weights that went to its registers meanwhile
///     score     16 or 32 events of an item at a time through all layers (score.cuh)
///     pool      8 columns of all items for each warp (pool.cuh)
///
/// with a barrier behind each of the first three; one more where a block takes another unit or chunk. Dependent loads
/// from launch to store: descriptor, weights (which the launch before hides where launches overlap) and offsets, rows.
/// In flight: all that a block reads, 41 KB for 100 events of 64 columns and {64, 32}. Where each warp has one tile of
/// these and relu, the busiest one executes 1,320 instructions of sm_75. The prototype of this kernel took 5.1 us on an
/// H100 where the staged kernel took 36.8; of 16 requests 17.2 with one tile at once, as here from sm_80 on, and 15.0
/// with two, which in 128 registers spill, where the staged kernel took 75.6.
///
/// A long history passes in chunks. A result depends on its item and its user's history alone: rows of a product do not
/// mix, and sums over events are taken in the order of their tiles, a softmax's by chunks.

#include "warprank/device/async_copy.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/shared.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/common/item_units.cuh"
#include "warprank/ops/detail/din_attention/chained/block.cuh"
#include "warprank/ops/detail/din_attention/chained/layout.hpp"
#include "warprank/ops/detail/din_attention/chained/pool.cuh"
#include "warprank/ops/detail/din_attention/chained/score.cuh"
#include "warprank/ops/detail/din_attention/chained/unit.cuh"

namespace warprank { inline namespace v0 { namespace detail::din::chained {

/// Scores and pools a unit that has events; it comes to lie in shared memory meanwhile.
template <class Block>
WARPRANK_DEVICE void attend(const Block& block, const Unit& found) {
  const Scoring<Block> scoring(block);
  const Unit& unit = block.header.unit;
  Pooling<Block> pooling;
  bool saturates = false;
  const int num_items = found.num_items, num_events = found.num_events, first_event = found.first_event;
  for (int first = 0; first < num_events; first += block.d.places.chunk_events) {
    const int size = block.chunk_size(num_events, first);
    const bool is_first = first == 0;
    Fragment query_weights[Block::steps] = {}, queries{};  // unknown ones would live from chunk to chunk
    if (is_first) {
      if (device::warp_index() < block.d.chunks) scoring.load_query_weights(query_weights, device::warp_index());
      queries = block.load_queries(found);
    } else {
      device::sync_block();  // the chunk before is not needed any more
    }
    block.copy_history(first_event + first, size);
    if (is_first) {
      const bool may_saturate = block.store_queries(queries, found);
      device::wait_async<0>();
      saturates = device::sync_block_any(may_saturate);
      scoring.compute_constants(query_weights);
    } else {
      device::wait_async<0>();
    }
    device::sync_block();
    scoring.score(num_items, size, saturates);
    device::sync_block();
    pooling.add(block, num_items, size);
  }
  pooling.store(block.d, unit);
}

/// What a block does. Rows of the grid are histories.
template <class Block>
WARPRANK_DEVICE void attend_history(const Descriptor* descriptors) {
  Header& header = *reinterpret_cast<Header*>(device::dynamic_shared<unsigned char>());
  const Descriptor& d = header.descriptor;
  const Block block(header);
  const Descriptor* const source = &descriptors[device::block_index().y];
  Start start = load_start(source);
  copy_descriptor<block_threads>(header.descriptor, source);
  if constexpr (Block::target >= 80) block.copy_weights(start.weights, start.chunks);
  device::wait_for_previous_launch();
  const auto num_blocks = static_cast<int>(device::grid_dim().x), begin = static_cast<int>(device::block_index().x);
  for (int number = begin;; number += num_blocks) {
    const Offsets offsets = load_offsets(start.axes);
    // While offsets are on their way:
    if (Block::target < 80 && number == begin) block.copy_weights(start.weights, start.chunks);
    device::sync_block();  // for the descriptor; the unit before is not needed any more
    const Unit unit = find_unit(start.axes, offsets, number, num_blocks, max_unit_items);
    if (unit.num_items == 0) break;
    if (device::thread_rank() == 0) header.unit = unit;
    bool is_last = unit.is_last;
    if (unit.num_events > 0) {
      attend(block, unit);
      is_last = header.unit.is_last;  // rather than that it keeps a register
    } else {
      Pooling<Block>().store(d, unit);
    }
    if (is_last) break;
    start = load_start(source);  // rather than that it keeps registers
  }
  device::wait_async<0>();  // also where there was no work
}

template <int Target, int Steps, int Pairs, bool IsDice>
WARPRANK_KERNEL(block_threads, resident_blocks(Target, Steps, Pairs))
din_chained_kernel(const Descriptor* descriptors) {
  attend_history<Block<Target, Steps, Pairs, IsDice>>(descriptors);
}

}}}  // namespace warprank::v0::detail::din::chained
