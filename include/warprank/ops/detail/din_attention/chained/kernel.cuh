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
/// with a barrier behind each of the first three; a fourth where a block takes another unit or chunk. Dependent loads
/// from launch to store: descriptor, weights (which the launch before hides where launches overlap), offsets, rows. In
/// flight: all that a block reads, 41 KB for 100 events of 64 columns and {64, 32}. The busiest warp executed 920
/// instructions in the prototype of this kernel (100 items, 100 events, 64 columns), which took 5.1 us on an H100 where
/// the staged kernel took 36.8. Of 16 requests it took 17.2 with one tile at once, as here, and 15.0 with two, which in
/// 128 registers spill, where the staged kernel took 75.6.
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

namespace warprank::detail::din::chained {

/// Requests a unit's first chunk and waits for it. c(q) of its items is computed. True where a weight of W(q) may be
/// too large for a half.
template <class Block>
WARPRANK_DEVICE bool start(const Block& block, const Unit& unit) {
  const Scoring<Block> scoring(block);
  if (device::thread_rank() == 0) block.header.unit = unit;
  Fragment query_weights[Block::steps];
  const auto queries = block.load_queries(unit);
  block.copy_history(unit.first_event, block.chunk_size(unit, 0));
  if (device::warp_index() < block.d.chunks) scoring.load_query_weights(query_weights, device::warp_index());
  const bool may_saturate = block.store_queries(queries);
  device::wait_async<0>();
  const bool saturates = device::sync_block_any(may_saturate);
  scoring.compute_constants(query_weights);
  return saturates;
}

/// Scores and pools the unit that was started, which has events.
template <class Block>
WARPRANK_DEVICE void attend(const Block& block, bool saturates) {
  const Scoring<Block> scoring(block);
  const Unit& unit = block.header.unit;
  Pooling<Block> pooling;
  for (int first = 0; first < unit.num_events; first += block.d.places.chunk_events) {
    const int size = block.chunk_size(unit, first);
    if (first > 0) {
      device::sync_block();  // the chunk before is not needed any more
      block.copy_history(unit.first_event + first, size);
      device::wait_async<0>();
    }
    device::sync_block();
    if (saturates)
      scoring.template score<true>(unit.num_items, size);
    else
      scoring.template score<false>(unit.num_items, size);
    device::sync_block();
    pooling.add(block, unit.num_items, size);
  }
  pooling.store(block.d, unit);
}

/// What a block does. Rows of the grid are histories.
template <class Block>
WARPRANK_DEVICE void attend_history(const Descriptor* descriptors) {
  Header& header = *reinterpret_cast<Header*>(device::dynamic_shared<unsigned char>());
  const Descriptor& d = header.descriptor;
  copy_descriptor<block_threads>(header.descriptor, &descriptors[device::block_index().y]);
  device::sync_block();
  const Block block(header);
  block.copy_weights();
  device::wait_for_previous_launch();
  const auto num_blocks = static_cast<int>(device::grid_dim().x);
  bool is_fresh = true;
  for (int number = static_cast<int>(device::block_index().x);; number += num_blocks) {
    Unit unit;
    if (!find_unit(d.axes, number, num_blocks, max_unit_items, unit)) break;
    const bool is_last = unit.is_last;
    if (unit.num_events > 0) {
      if (!is_fresh) device::sync_block();  // the unit before is not needed any more
      is_fresh = false;
      attend(block, start(block, unit));
    } else {
      Pooling<Block>().store(d, unit);
    }
    if (is_last) break;
  }
  device::wait_async<0>();  // also where there was no work
}

template <int Target, int Steps, int Pairs, bool IsDice>
WARPRANK_KERNEL(block_threads, resident_blocks(Target, Steps, Pairs))
din_chained_kernel(const Descriptor* descriptors) {
  attend_history<Block<Target, Steps, Pairs, IsDice>>(descriptors);
}

}  // namespace warprank::detail::din::chained
