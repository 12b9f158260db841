// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Bags of more than ids_per_piece ids, cut into pieces that blocks sum by themselves. Whoever is last to finish a
/// piece adds all of them in order.
///
/// Boundaries between windows of ids_per_piece ids, of all ids of a feature, are where blocks look for pieces. The bag
/// that lies across boundary w, and begins in window w - d, has its piece d found there, and for d = 1 its first one as
/// well. Of each window at most one bag that is longer begins there, and one piece that is not a bag's first.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/sorted.hpp"
#include "warprank/ops/detail/embedding_bag/bag_sums.cuh"
#include "warprank/ops/detail/embedding_bag/spans.cuh"

namespace warprank { inline namespace v0 { namespace detail::embedding_bag {

/// A whole bag.
struct WholeBag {
  const unsigned char *ids, *weights;  ///< null: each is the default
  int64_t bag, begin, length;
};

/// The bag that has the id at `position` of all ids of the feature.
WARPRANK_DEVICE WholeBag find_bag_at(const Block& block, int64_t position) {
  using namespace device;  // NOLINT: a device function
  const Record& f = block.f();
  const auto whole = [&](const unsigned char* ids, const unsigned char* weights, int64_t bag, int64_t begin,
                         int64_t from, int64_t to) -> WholeBag {
    const BagIds found = bag_of(block, ids, weights, from, to, 0);
    return {found.ids, found.weights, bag, begin + from, to - from};
  };
  if (is_in_array(f.form)) {
    const auto* ids = reinterpret_cast<const unsigned char*>(f.array.ids);
    const unsigned char* weights = block.extras().weights;
    if (f.form == Form::indices) {
      const int64_t bag = load_constant(&f.array.offsets[position]), count = num_ids(block);
      const int64_t begin = first_not_below(f.array.offsets, position, bag);
      return whole(ids, weights, bag, 0, begin,
                   position + first_not_below(f.array.offsets + position, count - position, bag + 1));
    }
    const int64_t bag = last_not_above(f.array.offsets, true_count(f.array.num_bags, f.max_bags), position);
    return whole(ids, weights, bag, 0, load_constant(&f.array.offsets[bag]), load_constant(&f.array.offsets[bag + 1]));
  }
  const int64_t* starts = block.batch.row_starts + f.requests.id_starts;
  const int64_t request = last_not_above(starts, block.shared.num_requests, position);
  const int64_t first = load_constant(&starts[request]);
  const unsigned char* blob = block.batch.bytes + load_constant(&block.batch.positions[request]);
  const uint32_t at = read_entry(blob, f.requests.values_entry);
  const unsigned char* ids = at == 0 ? nullptr : blob + at;
  const unsigned char* weights = f.has(Flag::weighted) ? weights_of(block, blob, request) : nullptr;
  if (f.form == Form::blob_one_segment) {
    return whole(ids, weights, request, first, 0, load_constant(&starts[request + 1]) - first);
  }
  const auto* offsets = section<uint32_t>(blob, read_entry(blob, f.requests.offsets_entry));
  const int64_t* bag_starts = block.batch.row_starts + f.requests.bag_starts + request;
  const int64_t first_bag = load_constant(bag_starts), bags = load_constant(bag_starts + 1) - first_bag;
  const int64_t bag = last_not_above(offsets, bags, position - first);
  return whole(ids, weights, first_bag + bag, first, load_constant(&offsets[bag]), load_constant(&offsets[bag + 1]));
}

/// Finds the piece that a lane of the first warp has in the present unit, two lanes for each boundary: whether there is
/// one.
WARPRANK_DEVICE bool find_piece(const Block& block, const Cursor& c) {
  constexpr int64_t size = policy.ids_per_piece;
  const int thread = device::fresh_thread_rank(), place = thread / 2, boundary = c.first + place + 1;
  if (place >= c.unit || thread >= device::warp_size || boundary > c.n) return false;
  const WholeBag bag = find_bag_at(block, boundary * size);
  const int64_t since = boundary - bag.begin / size, from = thread % 2 == 0 ? since * size : 0;
  if (bag.length <= size || bag.bag >= block.f().max_bags || since <= 0 || from >= bag.length) return false;
  if (thread % 2 != 0 && since != 1) return false;
  const int64_t to = bag.length - from < size ? bag.length : from + size;
  block.shared.pieces[thread] = {bag_of(block, bag.ids, bag.weights, from, to, static_cast<int>(bag.bag)), bag.begin,
                                 bag.length, from};
  return true;
}

/// The tickets of the feature's pieces, and their sums, in the workspace.
struct PieceStore {
  const Block& block;
  const Piece& piece;

  WARPRANK_DEVICE unsigned char* tickets() const { return block.workspace + int64_t{block.f().tickets_at} * 16; }
  /// Of the piece that begins at the bag's id `from`.
  WARPRANK_DEVICE PieceSums* sums(int dim, int64_t from) const {
    constexpr int64_t size = policy.ids_per_piece;
    const int64_t windows = block.f().max_ids / size + 1;
    const int64_t slot = 2 * ((piece.begin + from) / size) + (from == 0 ? 1 : 0);
    return reinterpret_cast<PieceSums*>(tickets() + (windows * 4 + 15) / 16 * 16 + slot * piece_bytes(dim));
  }
  /// Stores the part of the lane.
  WARPRANK_DEVICE void store(int part, const BagSums& of_piece) const {
    using device::store;
    const Record& f = block.f();
    const auto parts = static_cast<int>(f.parts);
    const int size = f.part_size;
    PieceSums* const to = sums(parts * size, piece.from);
    if (part < parts) {
      auto* values = reinterpret_cast<float*>(to + 1) + part * size;
      WARPRANK_UNROLL
      for (int i = 0; i < max_part_size; ++i) {
        if (i < size) store(values + i, of_piece.values[i]);
      }
    }
    if (part != 0) return;
    store(&to->divisor, of_piece.divisor);
    store(&to->count, of_piece.count);
    store(&to->missing, of_piece.missing);
    store(&to->missing_weight, of_piece.missing_weight);
  }
  /// Whether all pieces are stored now, and the caller's was the last. All lanes of the warp that stored call.
  WARPRANK_DEVICE bool arrive() const {
    using namespace device;  // NOLINT: a device function
    sync_warp();
    const auto last = static_cast<uint32_t>((piece.length - 1) / policy.ids_per_piece);
    uint32_t ticket = 0;
    if (lane_index() == 0) {
      auto* all = reinterpret_cast<uint32_t*>(tickets());
      ticket = take_ticket<Order::acq_rel, Scope::device>(&all[piece.begin / policy.ids_per_piece], last);
    }
    ticket = shuffle(full_warp, ticket, 0);
    sync_warp();
    return ticket == last;
  }
  /// The lane's part of the sum of all pieces, in order.
  WARPRANK_DEVICE BagSums combine(int part) const {
    const Record& f = block.f();
    BagSums all = no_sums(f);
    const auto parts = static_cast<int>(f.parts);
    const int size = f.part_size;
    for (int64_t from = 0; part < parts && from < piece.length; from += policy.ids_per_piece) {
      const PieceSums* one = sums(parts * size, from);
      const float* values = reinterpret_cast<const float*>(one + 1) + part * size;
      WARPRANK_UNROLL
      for (int i = 0; i < max_part_size; ++i) {
        if (i < size) all.values[i] = pooled(f.has(Flag::max), all.values[i], device::load(values + i));
      }
      all.divisor += device::load(&one->divisor);
      all.count += device::load(&one->count);
      all.missing += device::load(&one->missing);
      all.missing_weight += device::load(&one->missing_weight);
    }
    return all;
  }
};

}}}  // namespace warprank::v0::detail::embedding_bag
