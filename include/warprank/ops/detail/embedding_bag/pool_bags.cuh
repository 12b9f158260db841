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
/// A block goes over all its bags and sums the short ones; only where it saw others it goes over them again. All of it
/// is one loop with one place where rows are added and one where bags are stored: what is written once is compiled
/// once for each way of loading rows, or once at all.

#include <cstdint>

#include "warprank/device/sync.hpp"
#include "warprank/ops/detail/embedding_bag/bag_sums.cuh"
#include "warprank/ops/detail/embedding_bag/hashed.cuh"
#include "warprank/ops/detail/embedding_bag/pieces.cuh"

namespace warprank { inline namespace v0 { namespace detail::embedding_bag {

/// The bag of y that a group of lanes, a warp or the block is summing.
WARPRANK_DEVICE int present_bag(const Block& block) {
  const Cursor& c = block.cursor();
  if (!c.together) return bag_of_group(block, c);
  const int warp = device::fresh_thread_rank() / device::warp_size;
  return (c.sharing == policy.threads ? block.shared.piece.bag : block.shared.medium_bags[warp]).bag;
}

/// Sums a bag, or a piece of one, and stores it. Of launches with keys, all lanes of a warp call, those of groups whose
/// bag is not `valid`, too.
template <bool HasKeys, bool HasCaches>
WARPRANK_DEVICE void pool_bag(const Block& block, const BagIds& bag, bool valid) {
  const Record& f = block.f();
  const auto c = [&]() -> const Cursor& { return block.cursor(); };  // not kept: registers are for rows
  const auto is_piece = [&] { return f.has(Flag::is_for_pieces); };
  const auto rank = [&] { return device::fresh_thread_rank() & (c().sharing - 1); };  // among those who share the bag
  const PieceStore store{block, block.shared.piece};
  // The bag of a piece follows where that was the last to be stored; the first warp has the sums.
  for (bool combines = false;; combines = true) {
    for (int pass = 0; pass < static_cast<int>(f.parts); pass += device::warp_size) {
      BagSums sums = no_sums(f);
      const int part = pass + (device::fresh_thread_rank() & ((1 << f.lanes_log2) - 1));
      if (combines) {
        sums = store.combine(part);
      } else {
        const int start = in_flight * (rank() >> f.lanes_log2), step = in_flight * (c().sharing >> f.lanes_log2);
        if (HasKeys && f.path == Path::keys) {
          add_keys<HasCaches>(block, bag, rank() >> f.lanes_log2, c().sharing >> f.lanes_log2, part, sums);
        } else if (f.path == Path::any) {
          add_ids<true>(block, bag, start, step, part, sums);
        } else {
          add_ids<false>(block, bag, start, step, part, sums);
        }
        add_groups(f, c().sharing, sums);
        if (c().sharing == policy.threads) add_warps(block, sums);
      }
      if (rank() >> f.lanes_log2 != 0 || (HasKeys && !valid)) continue;
      const bool is_whole = !is_piece() || combines;
      if (part == 0) {
        if (combines) {
          count(block, 0, 0, 0, sums.count == 0);
        } else {
          count(block, bag.length, sums.missing, bag.length - sums.count, is_whole && sums.count == 0);
        }
      }
      if (is_whole) {
        store_bag(f, c().row + present_bag(block), part, sums);
      } else {
        store.store(part, sums);
      }
    }
    if (!is_piece() || combines || device::fresh_thread_rank() >= device::warp_size || !store.arrive()) return;
  }
}

/// Whether a bag is left to blocks for pieces.
WARPRANK_DEVICE bool is_cut(const Record& f, const BagIds& bag) {
  return f.has(Flag::cuts_bags) && bag.length > policy.ids_per_piece;
}

/// Sums all bags of the block, or all pieces. The whole block calls. What it knows is in shared memory: registers are
/// for rows.
template <bool HasKeys, bool HasCaches>
WARPRANK_DEVICE void pool_bags(const Block& block) {
  using namespace device;  // NOLINT: a device function
  const Record& f = block.f();
  Cursor& of_warp = block.cursor();
  const auto c = [&]() -> Cursor& { return of_warp; };
  Shared& shared = block.shared;
  const auto in_pieces = [&] { return f.has(Flag::is_for_pieces); };
  const auto group = [&] { return 1 << f.lanes_log2; };
  // By one lane of each warp, which knows the others to have read what was there.
  const auto set = [](auto& what, auto value) {
    sync_warp();
    if (fresh_thread_rank() % warp_size == 0) what = value;
    sync_warp();
  };
  if (in_pieces()) set(c().together, true);
  // Then neither another span is looked for, nor the same one again for bags that are summed together.
  const auto is_only_unit = [&] {
    const Cursor& cursor = c();
    const bool has_next_span = is_by_request(f.form) && cursor.request + cursor.next < shared.num_requests;
    return !in_pieces() && cursor.first + cursor.step * cursor.unit >= cursor.n && !has_next_span &&
           cursor.request == cursor.first_request && cursor.first == cursor.begin * cursor.unit;
  };
  while (true) {
    if (!c().is_begun && (!c().has_span || c().first >= c().n)) {
      int request = c().request + c().next;
      if (!c().has_span || in_pieces()) {
        if (c().together || !sync_block_any(c().has_longer)) return;
        set(c().together, true);
        request = c().first_request;
      }
      go_to_span(block, request);
      continue;
    }
    // Found again for each bag that is summed together, or it would be in registers meanwhile.
    bool valid = false;
    BagIds bag{};
    if (!in_pieces()) {
      bag = find_bag(block, c(), valid);
    } else if (!c().is_begun) {
      valid = find_piece(block, c());
    }
    if (!c().together) {
      const bool is_short = bag.length <= policy.max_short_bag;
      if (any(full_warp, valid && !is_short && !is_cut(f, bag))) set(c().has_longer, true);
      valid = valid && is_short && !(f.has(Flag::few_ids) && bag.length <= 1);
    } else {
      if (!c().is_begun) {
        valid = valid && (in_pieces() || (bag.length > policy.max_short_bag && !is_cut(f, bag)));
        if (!sync_block_any(valid)) {
          next_unit(block);
          continue;
        }
        const bool is_leader = valid && (in_pieces() || (fresh_thread_rank() & (group() - 1)) == 0);
        const bool is_long = in_pieces() || bag.length > policy.max_medium_bag >> f.lanes_log2;
        const uint32_t longer = ballot(full_warp, is_leader && is_long);
        set(c().medium_bags, ballot(full_warp, is_leader && !is_long));
        set(shared.long_bags[fresh_thread_rank() / warp_size], longer);
        set(c().is_begun, true);
      }
      const int warp = fresh_thread_rank() / warp_size, lane = fresh_thread_rank() % warp_size;
      const uint32_t medium = c().medium_bags;
      if (medium != 0) {
        set(c().sharing, warp_size);
        set(c().medium_bags, medium & (medium - 1));
        if (lane == first_bit(medium)) shared.medium_bags[warp] = bag;
        sync_warp();
        bag = shared.medium_bags[warp];
      } else {
        set(c().sharing, policy.threads);
        sync_block();
        int owner = 0;
        while (owner < num_warps && shared.long_bags[owner] == 0) ++owner;
        if (owner == num_warps) {
          if (is_only_unit()) return;
          set(c().is_begun, false);
          next_unit(block);
          continue;
        }
        const uint32_t left = shared.long_bags[owner];
        sync_block();
        if (warp == owner && lane == first_bit(left)) {
          shared.long_bags[owner] = left & (left - 1);
          if (in_pieces()) {
            shared.piece = shared.pieces[lane];
          } else {
            shared.piece.bag = bag;
          }
        }
        sync_block();
        bag = shared.piece.bag;
      }
      valid = true;
    }
    if (HasKeys && !valid) bag.length = 0;
    if (valid || (HasKeys && f.path == Path::keys)) pool_bag<HasKeys, HasCaches>(block, bag, valid);
    if (c().together) continue;
    if (is_only_unit()) {
      if (!sync_block_any(c().has_longer)) return;
      set(c().together, true);
    } else {
      next_unit(block);
    }
  }
}

}}}  // namespace warprank::v0::detail::embedding_bag
