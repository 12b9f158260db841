// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Bags. How a bag is summed follows from its length alone, and from how many lanes share a row:
///
///     ids                            summed by                  ids in turns of 4 to
///     up to max_short_bag            a group of lanes           the group
///     up to max_medium_bag / lanes   a warp                     its groups, then a butterfly
///     more                           the block                  its groups, then the warps in order
///     more than ids_per_piece        a block for each piece     pieces.cuh
///
/// A block goes over all its bags and sums the short ones; only where it saw others it goes over them again, so that
/// the first loop has the registers for itself.

#include <cstdint>

#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/embedding_bag/bag_sums.cuh"
#include "warprank/ops/detail/embedding_bag/copy_rows.cuh"
#include "warprank/ops/detail/embedding_bag/pieces.cuh"

namespace warprank::detail::embedding_bag {

/// Pools the bag of each group of lanes.
template <class Row, int Bytes>
WARPRANK_DEVICE void pool_short_bag(const Block& block, const BagIds& bag) {
  const Record& f = block.f();
  const int first_part = device::fresh_thread_rank() & ((1 << f.lanes_log2) - 1);
  for (int part = first_part; part < static_cast<int>(f.parts); part += device::warp_size) {
    auto sums = no_sums<Row, part_size<Row, Bytes>>();
    add_ids<Row, Bytes>(f, bag, 0, policy.ids_in_flight, part, sums);
    if (part == 0) count(block, bag.length, sums.missing, bag.length - sums.count, sums.count == 0);
    store_bag<Row>(f, block.cursor().row + bag.bag, part, sums);
  }
}

/// Stores a piece, and where it was the last the bag. The first warp calls, which has the sums.
template <class Row, int Bytes>
WARPRANK_DEVICE void finish_pieces(const Block& block, const PieceStore& store, int64_t bag) {
  constexpr int size = part_size<Row, Bytes>;
  const Record& f = block.f();
  if (!store.arrive()) return;
  const int lanes = 1 << f.lanes_log2, lane = device::fresh_thread_rank() % device::warp_size;
  for (int part = lane; lane < lanes && part < static_cast<int>(f.parts); part += device::warp_size) {
    BagSums<size> sums = store.template combine<Row, size>(part);
    if (part == 0) count(block, 0, 0, 0, sums.count == 0);
    sums.offset = 0;  // is in the sums
    store_bag<Row>(f, bag, part, sums);
  }
}

/// Pools what is too long for a group of lanes, of the unit whose bags, or pieces, lanes bring. The whole block calls.
template <class Row, int Bytes>
WARPRANK_DEVICE void pool_together(const Block& block, const BagIds& mine, bool valid) {
  using namespace device;  // NOLINT: a device function
  constexpr int size = part_size<Row, Bytes>, in_flight = policy.ids_in_flight;
  const Record& f = block.f();
  Shared& shared = block.shared;
  const auto in_pieces = [&] { return f.has(Flag::is_for_pieces); };  // read when asked for: registers are for rows
  const bool is_leader = in_pieces() || (fresh_thread_rank() & ((1 << f.lanes_log2) - 1)) == 0;
  const bool is_long = in_pieces() || mine.length > policy.max_medium_bag >> f.lanes_log2;
  uint32_t medium = ballot(full_warp, is_leader && valid && !is_long);
  const uint32_t longer = ballot(full_warp, is_leader && valid && is_long);
  if (lane_index() == 0) shared.long_bags[warp_index()] = longer;
  while (true) {
    const bool is_shared = medium == 0;  // by the block
    const int warp = fresh_thread_rank() / warp_size, lane = fresh_thread_rank() % warp_size;
    if (!is_shared) {
      if (lane == first_bit(medium)) shared.medium_bags[warp] = mine;
      medium &= medium - 1;
      sync_warp();
    } else {
      sync_block();
      int owner = 0;
      while (owner < num_warps && shared.long_bags[owner] == 0) ++owner;
      if (owner == num_warps) break;
      const uint32_t left = shared.long_bags[owner];
      sync_block();
      if (warp == owner && lane == first_bit(left)) {
        shared.long_bag = mine;
        shared.long_bags[owner] = left & (left - 1);
        if (in_pieces()) shared.piece = shared.pieces[lane];
      }
      sync_block();
    }
    const PieceStore store{block, shared.piece};
    const BagIds& bag = is_shared ? shared.long_bag : shared.medium_bags[warp];
    for (int pass = 0; pass < static_cast<int>(f.parts); pass += warp_size) {
      const int thread = fresh_thread_rank(), sharing = is_shared ? policy.threads : warp_size;
      auto sums = no_sums<Row, size>();
      add_ids<Row, Bytes>(f, bag, in_flight * ((thread & (sharing - 1)) >> f.lanes_log2),
                          in_flight * (sharing >> f.lanes_log2), pass + (thread & ((1 << f.lanes_log2) - 1)), sums);
      add_groups<Row>(sums, f.lanes_log2);
      if (is_shared) add_warps(shared, sums);
      const int rank = fresh_thread_rank() & ((is_shared ? policy.threads : warp_size) - 1);
      if (rank >> f.lanes_log2 != 0) continue;
      const int part = pass + rank;
      if (part == 0) {
        const bool is_empty = !in_pieces() && sums.count == 0;
        count(block, bag.length, sums.missing, bag.length - sums.count, is_empty);
      }
      if (in_pieces()) {
        store.template store<Row>(part, sums);
      } else {
        store_bag<Row>(f, block.cursor().row + bag.bag, part, sums);
      }
    }
    if (!is_shared) sync_warp();  // the bag is done with
    if (in_pieces() && fresh_thread_rank() / warp_size == 0) finish_pieces<Row, Bytes>(block, store, bag.bag);
  }
}

/// I8 has none, for the sake of its registers.
template <class Row>
inline constexpr bool has_few_ids_path = !std::is_same_v<Row, int8_t>;

/// As if no bag had more than one id: whether one has.
template <class Row, int Bytes>
WARPRANK_DEVICE bool copy_first_ids(const Block& block) {
  using device::load_constant;
  const Record& f = block.f();
  bool has_more = false;
  const auto id_at = [&](int bag) {
    const int64_t begin = load_constant(&f.array.offsets[bag]), end = load_constant(&f.array.offsets[bag + 1]);
    has_more |= end - begin > 1;
    return begin < end ? load_constant(&f.array.ids[begin]) : int64_t{-1};
  };
  copy_rows<Row, Bytes>(block, id_at, false);
  return device::sync_block_any(has_more);
}

template <class Row, int Bytes>
WARPRANK_DEVICE void pool_bags(const Block& block) {
  const Record& f = block.f();
  const Cursor& c = block.cursor();
  if constexpr (has_few_ids_path<Row>) {
    if (f.has(Flag::few_ids) && !copy_first_ids<Row, Bytes>(block)) return;
  }
  const auto is_together = [&](const BagIds& bag) {
    return bag.length > policy.max_short_bag && !(f.has(Flag::cuts_bags) && bag.length > policy.ids_per_piece);
  };
  bool valid, has_longer = f.has(Flag::is_for_pieces);
  if (!has_longer) {
    for (bool has = c.has_span; has; has = next_span(block)) {
      for (; c.first < c.n; next_unit(block)) {
        const BagIds bag = find_bag(block, c, valid);
        if (!valid) continue;
        has_longer |= is_together(bag);
        const bool is_done = has_few_ids_path<Row> && f.has(Flag::few_ids) && bag.length <= 1;
        if (bag.length <= policy.max_short_bag && !is_done) pool_short_bag<Row, Bytes>(block, bag);
      }
    }
  }
  if (!device::sync_block_any(has_longer)) return;
  const auto in_pieces = [&] { return f.has(Flag::is_for_pieces); };
  for (bool has = in_pieces() || go_to_span(block, c.first_request); has; has = !in_pieces() && next_span(block)) {
    for (; c.first < c.n; next_unit(block)) {
      const BagIds bag = in_pieces() ? find_piece(block, c, valid) : find_bag(block, c, valid);
      valid = valid && (in_pieces() || is_together(bag));
      if (device::sync_block_any(valid)) pool_together<Row, Bytes>(block, bag, valid);
    }
  }
}

}  // namespace warprank::detail::embedding_bag
