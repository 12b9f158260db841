// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which bags a block works on. A *span* is a request, or a whole feature. The blocks of a feature have requests in
/// turn, or parts of the rows of one, so that all about a request is the same for a block and no row is searched for.

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/index.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/device/sorted.hpp"
#include "warprank/device/sync.hpp"
#include "warprank/device/true_count.hpp"
#include "warprank/ops/detail/embedding_bag/blob.cuh"
#include "warprank/ops/detail/embedding_bag/record.hpp"

namespace warprank { inline namespace v0 { namespace detail::embedding_bag {

/// What a warp works on: in shared memory, because registers are for rows.
struct Cursor {
  const unsigned char* values;  ///< ids, or of a dense input; null: each is the default
  const uint32_t* offsets;
  const unsigned char* weights;  ///< of the span's first id; null: each has the default weight
  int64_t row;                   ///< of y: the span's first bag
  int32_t n;                     ///< bags of the span
  int32_t request;               ///< the span
  int32_t first_request;
  int32_t next;          ///< how many spans further the block's next one is
  int32_t begin;         ///< the block's first unit in each
  int32_t step;          ///< how many units further its next one is
  int32_t first;         ///< the first bag of the present unit
  int32_t unit;          ///< bags that the block takes at once
  uint32_t medium_bags;  ///< of the unit, left for the warp: the lanes that have them
  int32_t sharing;       ///< lanes that sum a bag together: a group of them, a warp or the block
  bool has_span;
  bool has_longer;  ///< than lanes of a group sum
  bool together;    ///< those are summed now
  bool is_begun;    ///< the unit: it is known which of its bags they are
};

/// What a thread has seen, for the feature's counters.
struct Tally {
  uint32_t ids, missing, padding, empty_bags;
};

/// The ids of a bag, or of a piece of one.
struct BagIds {
  const unsigned char* ids;      ///< null: each is the default id
  const unsigned char* weights;  ///< null: each has the default weight
  int32_t bag;                   ///< of the span's
  int32_t length;
};
/// What lanes know of a bag beside its sums.
struct BagCounts {
  double divisor;           ///< of weights: the sum of them, or of their squares
  uint32_t count, missing;  ///< ids that are not padding, and of them those that the table does not have
  float missing_weight;     ///< sum of the weights of those
  float offset;             ///< of I8: the sum of offsets
};
/// Pieces that a block looks for at once, two at each boundary.
inline constexpr int max_pieces = 8;
/// Which piece of a bag that is, of all ids of the feature and of the bag.
struct Piece {
  BagIds bag;  ///< its own ids
  int64_t begin, length, from;
};

struct Shared {
  Record record;
  Extras extras;
  Cursor cursors[num_warps];
  int32_t num_requests;
  BagIds medium_bags[num_warps];  ///< that are being summed
  uint32_t long_bags[num_warps];  ///< the lanes that have bags for the whole block
  float sums[num_warps - 1][max_part_size * device::warp_size];
  BagCounts counts[num_warps - 1];
  Piece piece;               ///< that the block sums, or a bag without the rest
  Piece pieces[max_pieces];  ///< of the unit
  Tally tally[policy.threads];
  double divisor[policy.threads];        ///< of weights, of the bag that each thread is at
  float missing_weight[policy.threads];  ///< the same of that sum
};

/// What the functions of a block have in common.
struct Block {
  Shared& shared;
  const Batch& batch;
  const Record* record;  ///< in device memory
  uint32_t lines;        ///< of it: with extras 2
  unsigned char* workspace;

  WARPRANK_DEVICE const Record& f() const { return shared.record; }
  WARPRANK_DEVICE const Extras& extras() const { return shared.extras; }
  WARPRANK_DEVICE Cursor& cursor() const { return shared.cursors[device::fresh_thread_rank() / device::warp_size]; }
};

/// Where the weights of a request's ids begin; null: each has the default weight.
WARPRANK_DEVICE const unsigned char* weights_of(const Block& block, const unsigned char* blob, int64_t request) {
  const Extras& extras = block.extras();
  if (extras.weights != nullptr) {
    const int64_t* starts = block.batch.row_starts + block.f().requests.id_starts;
    return extras.weights + device::load_constant(&starts[request]) * extras.weights_stride;
  }
  const uint32_t at = read_entry(blob, extras.weights_entry);
  return at == 0 ? nullptr : blob + at + extras.weights_column_bytes;
}

/// Divides the bags of a span into units. A warp looks up the keys of all its bags line by line, so where there are few
/// bags of keys they are spread over all blocks that the span has.
WARPRANK_DEVICE void begin_units(const Record& f, Cursor& c) {
  c.unit = f.unit;
  if (f.path == Path::keys) {
    const int32_t share = (c.n + c.step - 1) / c.step;
    if (share < c.unit) c.unit = share > num_warps ? share : num_warps;
  }
  c.first = c.begin * c.unit;
}

/// Reads what a span is: of request `c.request`, whose blob is at `position`. All lanes of the warp call.
WARPRANK_DEVICE void read_span(const Block& block, Cursor& c, int64_t position) {
  using namespace device;  // NOLINT: a device function
  const Record& f = block.f();
  const Batch& batch = block.batch;
  const int requests = block.shared.num_requests;
  c.has_span = c.request < (is_by_request(f.form) ? requests : 1);
  if (!c.has_span) return;
  c.row = 0;
  if (!is_by_request(f.form)) {
    const bool in_array = is_in_array(f.form);
    const auto most = static_cast<int32_t>(f.max_bags);
    c.values = reinterpret_cast<const unsigned char*>(f.array.ids);
    c.weights = block.extras().weights;
    c.n = in_array ? static_cast<int32_t>(true_count(f.array.num_bags, most)) : requests < most ? requests : most;
    return begin_units(f, c);
  }
  const unsigned char* blob = batch.bytes + position;
  const int64_t* starts = batch.row_starts + f.requests.bag_starts + c.request;
  const uint32_t at = read_entry(blob, f.requests.values_entry);
  if (f.form == Form::blob_segments) c.offsets = section<uint32_t>(blob, read_entry(blob, f.requests.offsets_entry));
  const int64_t row = load_constant(starts), end = load_constant(starts + 1), rest = f.max_bags - row;
  c.row = row;
  c.n = static_cast<int32_t>(end - row < rest ? end - row : rest);
  c.values = at == 0 ? nullptr : blob + at;
  begin_units(f, c);
  if (f.has(Flag::weighted)) c.weights = weights_of(block, blob, c.request);
}

/// Goes to the block's span of request `request`. All lanes of the warp call; false when there is none.
WARPRANK_DEVICE bool go_to_span(const Block& block, int request) {
  using namespace device;  // NOLINT: a device function
  Cursor& c = block.cursor();
  const bool reads = is_by_request(block.f().form) && request < block.shared.num_requests;
  const int64_t position = reads ? load_constant(&block.batch.positions[request]) : 0;
  Cursor next = c;
  sync_warp();
  next.request = request;
  read_span(block, next, position);
  if (fresh_thread_rank() % warp_size == 0) c = next;
  sync_warp();
  return next.has_span;
}
WARPRANK_DEVICE bool next_span(const Block& block) {
  const Cursor& c = block.cursor();
  return go_to_span(block, c.request + c.next);
}
WARPRANK_DEVICE void next_unit(const Block& block) {
  using namespace device;  // NOLINT: a device function
  Cursor& c = block.cursor();
  sync_warp();
  if (fresh_thread_rank() % warp_size == 0) c.first += c.step * c.unit;
  sync_warp();
}

/// How many ids the feature has.
WARPRANK_DEVICE int64_t num_ids(const Block& block) {
  using namespace device;  // NOLINT: a device function
  const Record& f = block.f();
  if (f.form == Form::indices) return true_count(block.extras().num_ids, f.max_ids);
  const int64_t* count = f.form == Form::offsets
                             ? f.array.offsets + true_count(f.array.num_bags, f.max_bags)
                             : block.batch.row_starts + f.requests.id_starts + block.shared.num_requests;
  const int64_t ids = load_constant(count);
  return ids < f.max_ids ? ids : f.max_ids;
}
/// Pieces begin between multiples of ids_per_piece, of which a block for pieces has some: as if they were bags.
WARPRANK_DEVICE void divide_pieces(const Block& block, Cursor& c) {
  const int64_t ids = num_ids(block);
  const auto blocks = static_cast<int32_t>(block.f().blocks);
  c.has_span = true;
  c.n = ids == 0 ? 0 : static_cast<int32_t>((ids - 1) / policy.ids_per_piece);
  c.unit = (c.n + blocks - 1) / blocks;
  if (c.unit > max_pieces / 2) c.unit = max_pieces / 2;
  if (c.unit < 1) c.unit = 1;
  c.first = c.begin * c.unit;
}

/// Divides the feature among its blocks, and reads the first span. `position` is that of the lane's request. All lanes
/// of one warp call.
WARPRANK_DEVICE void begin_spans(const Block& block, int64_t position) {
  using namespace device;  // NOLINT: a device function
  const Record& f = block.f();
  const bool is_for_pieces = f.has(Flag::is_for_pieces);
  const int requests = is_by_request(f.form) && !is_for_pieces ? block.shared.num_requests : 1;
  const auto rank = static_cast<int>(f.rank), blocks = static_cast<int>(f.blocks);
  Cursor c{};
  c.sharing = 1 << f.lanes_log2;
  if (requests <= 1) {
    c.request = 0, c.next = 1, c.begin = rank, c.step = blocks;
  } else if (blocks <= requests) {
    c.request = rank, c.next = blocks, c.begin = 0, c.step = 1;
  } else {
    c.begin = rank / requests;
    c.request = rank - c.begin * requests;
    c.step = (blocks - c.request + requests - 1) / requests;
    c.next = requests;
  }
  c.first_request = c.request;
  position = shuffle(full_warp, position, c.request % warp_size);
  if (c.request >= warp_size && c.request < requests) position = load_constant(&block.batch.positions[c.request]);
  if (is_for_pieces) {
    divide_pieces(block, c);
  } else {
    read_span(block, c, position);
  }
  if (lane_index() < num_warps) block.shared.cursors[lane_index()] = c;
}

/// The bag that has ids [begin, end) of those that `ids` and `weights` begin with.
WARPRANK_DEVICE BagIds bag_of(const Block& block, const unsigned char* ids, const unsigned char* weights, int64_t begin,
                              int64_t end, int bag) {
  return {ids == nullptr ? nullptr : address_of_id(ids, begin, block.f().has(Flag::narrow_ids)),
          weights == nullptr ? nullptr : weights + begin * block.extras().weights_stride, bag,
          static_cast<int>(end - begin)};
}

/// Which bag of the span the caller's group of lanes has in the present unit: c.n when it has none.
WARPRANK_DEVICE int bag_of_group(const Block& block, const Cursor& c) {
  const int thread = device::fresh_thread_rank(), lane = thread % device::warp_size;
  const int per_warp = (c.unit + num_warps - 1) / num_warps, group = lane >> block.f().lanes_log2;
  const int place = thread / device::warp_size * per_warp + group, b = c.first + place;
  return group < per_warp && place < c.unit && b < c.n ? b : c.n;
}
/// That bag.
WARPRANK_DEVICE BagIds find_bag(const Block& block, const Cursor& c, bool& valid) {
  using device::load_constant;
  const Record& f = block.f();
  const int b = bag_of_group(block, c);
  valid = b < c.n;
  if (!valid) return {nullptr, nullptr, b, 0};
  if (f.form == Form::blob_one_segment || f.form == Form::blob_each_of_requests) {
    const unsigned char* blob = block.batch.bytes + load_constant(&block.batch.positions[b]);
    const uint32_t at = read_entry(blob, f.requests.values_entry);
    const unsigned char* ids = at == 0 ? nullptr : blob + at;
    int64_t length = 1;
    if (f.form == Form::blob_one_segment) {
      const int64_t* starts = block.batch.row_starts + f.requests.id_starts + b;
      length = load_constant(starts + 1) - load_constant(starts);
    }
    return bag_of(block, ids, f.has(Flag::weighted) ? weights_of(block, blob, b) : nullptr, 0, length, b);
  }
  int64_t begin = b, end = begin + 1;
  if (f.form == Form::offsets) {
    begin = load_constant(&f.array.offsets[b]);
    end = load_constant(&f.array.offsets[b + 1]);
  } else if (f.form == Form::blob_segments) {
    begin = load_constant(&c.offsets[b]);
    end = load_constant(&c.offsets[b + 1]);
  } else if (f.form == Form::indices) {
    const int64_t count = num_ids(block);
    begin = device::first_not_below(f.array.offsets, count, b);
    end = begin + device::first_not_below(f.array.offsets + begin, count - begin, b + 1);
  }
  return bag_of(block, c.values, c.weights, begin, end, b);
}

/// Counts for the feature's counters; of no launch without them.
WARPRANK_DEVICE void count(const Block& block, uint32_t ids, uint32_t missing, uint32_t padding, uint32_t empty_bags) {
  if (block.f().counters == nullptr) return;
  Tally& tally = block.shared.tally[device::fresh_thread_rank()];
  tally.ids += ids;
  tally.missing += missing;
  tally.padding += padding;
  tally.empty_bags += empty_bags;
}
/// Adds what the block has counted, once: however many ask for the same rows, what waits for a counter are blocks. All
/// threads call.
WARPRANK_DEVICE void add_counts(const Block& block, bool is_hashed) {
  using namespace device;  // NOLINT: a device function
  sync_block();
  if (fresh_thread_rank() >= warp_size) return;
  LookupCounters* const to = block.f().counters;
  Tally tally{};
  for (int thread = lane_index(); thread < policy.threads; thread += warp_size) {
    const Tally& other = block.shared.tally[thread];
    tally.ids += other.ids, tally.missing += other.missing;
    tally.padding += other.padding, tally.empty_bags += other.empty_bags;
  }
  const uint32_t counted[] = {tally.ids, tally.missing, tally.padding, tally.empty_bags};
  int64_t* const missing = is_hashed ? &to->unknown : &to->out_of_range;
  int64_t* const counters[] = {&to->ids, missing, &to->padding, &to->empty_bags};
  WARPRANK_UNROLL
  for (int i = 0; i < 4; ++i) {
    const uint32_t all = reduce_add(full_warp, counted[i]);
    if (lane_index() != 0 || all == 0) continue;
    atomic_add<Order::relaxed, Scope::device>(reinterpret_cast<uint64_t*>(counters[i]), uint64_t{all});
  }
}

}}}  // namespace warprank::v0::detail::embedding_bag
