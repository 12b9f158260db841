// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Features of hashed tables. A warp looks 32 keys up at once (hash_table/find.cuh), one for each lane, of whatever
/// bags or rows of y they are; then the lanes that share a row take the rows that were found, 4 on their way. Loads
/// that wait for one another are those of kernel.cuh's table with, in place of the row, a line and the row, and for
/// displaced keys another line: on average of 32 keys that all are in a table at load 0.8 two lines where they are
/// inline, 2.7 where they are not. One for each row of y, ids of 32 rows are read at once; of bags one for each lane of
/// those that share a row, while rows of the ids before are on their way. Where a card has room for more blocks than
/// bags fill, a block has fewer of them: the busiest warp of 50 bags of 5 keys, rows of 64 bytes, executes 108
/// operations of the vocabulary, and executed 161 where its block had all (counted).

#include <cstdint>

#include "warprank/device/collectives.hpp"
#include "warprank/device/memory.hpp"
#include "warprank/ops/detail/embedding_bag/bag_sums.cuh"
#include "warprank/ops/detail/embedding_bag/copy_rows.cuh"
#include "warprank/ops/detail/embedding_bag/parts.cuh"
#include "warprank/ops/detail/embedding_bag/spans.cuh"
#include "warprank/ops/detail/hash_table/find.cuh"
#include "warprank/ops/detail/row_cache/look_up.cuh"

namespace warprank { inline namespace v0 { namespace detail::embedding_bag {

/// The feature's table, as look-ups see it: in shared memory, because registers are for rows.
struct KeyTable {
  const unsigned char* buckets;
  const hash_table::Placement& placement;
  const hash_table::BucketShape& shape;
  bool is_mutable;

  WARPRANK_DEVICE explicit KeyTable(const Block& block)
      : buckets(block.f().rows),
        placement(block.extras().placement),
        shape(block.extras().shape),
        is_mutable(block.extras().is_mutable) {}
  WARPRANK_DEVICE const unsigned char* bucket(uint64_t index) const {
    return buckets + index * static_cast<uint64_t>(shape.bucket_bytes);
  }
};

/// Of a feature with a cache: whether the rows on the host are a direct table, and not a hash table.
WARPRANK_DEVICE bool is_direct(const Block& block) { return block.extras().placement.num_buckets == 0; }

/// Where the row of each lane's key is, in the cache or in the host's memory; null: nowhere, which a table in a store
/// is told. All lanes of the warp call. `is_counted` is the same for all: whether they had not asked before.
WARPRANK_DEVICE const unsigned char* find_cached(const Block& block, uint64_t key, bool is_sought, bool is_counted) {
  using namespace device;  // NOLINT: a device function
  const Record& f = block.f();
  const RowCacheView& cache = *block.extras().cache;
  const unsigned char* row = hashed::find_rows<hash_table::Layout::header>(cached::Table(cache.rows), key, is_sought);
  const bool is_hit = row != nullptr, is_missed = is_sought && !is_hit;
  if (any(full_warp, is_missed)) {
    if (is_direct(block)) {
      if (is_missed && key < f.num_rows) row = f.rows + key * f.row_stride;
    } else {
      const unsigned char* const on_host = hashed::find_rows(KeyTable(block), key, is_missed);
      if (is_missed) row = on_host;
    }
  }
  if (!is_counted) return row;
  cached::tell_hits(cache, is_hit);
  cached::tell_keys(cache.missed, key, is_missed && row != nullptr);
  const KeyList* const absent = block.extras().absent;
  if (absent != nullptr) cached::tell_keys(*absent, key, is_missed && row == nullptr);
  return row;
}

/// What became of a lane's id.
struct FoundKey {
  const unsigned char* row;  ///< null: there is none
  bool is_padding, is_missing;
};
/// All lanes of the warp call; `is_id` where one has an id, `is_first` when they had not asked before.
template <bool HasCaches>
WARPRANK_DEVICE FoundKey find_key(const Block& block, int64_t id, bool is_id, bool is_first = true) {
  const bool is_padding = is_id && block.extras().has_padding && id == block.extras().padding;
  const bool is_sought = is_id && !is_padding;
  const unsigned char* row = nullptr;
  if (HasCaches && block.extras().cache != nullptr) {
    row = find_cached(block, static_cast<uint64_t>(id), is_sought, is_first);
  } else {
    row = hashed::find_rows(KeyTable(block), static_cast<uint64_t>(id), is_sought);
  }
  return {row, is_padding, is_sought && row == nullptr};
}

/// Loads Words words of a row, which may be changing: 16 bytes, 8 or 4.
template <int Words>
WARPRANK_DEVICE void load_found_words(bool may_change, const unsigned char* from, uint32_t* to) {
  using namespace device;  // NOLINT: a device function
  const auto* words = reinterpret_cast<const Vector<uint32_t, Words>*>(from);
  const auto loaded = may_change ? load<Order::relaxed, Scope::device>(words) : load_constant(words);
  WARPRANK_UNROLL
  for (int i = 0; i < Words; ++i) to[i] = loaded[i];
}
/// Loads the lane's part of each row that there is; the others stay as they are. All loads are on their way together.
/// Parts of less than a word are taken from the word that they are in: slots consist of whole ones.
template <bool HasCaches, int N>
WARPRANK_DEVICE void load_found_parts(const Block& block, const unsigned char* const (&rows)[N], int part,
                                      RawPart (&raw)[N]) {
  const Record& f = block.f();
  const bool may_change = block.extras().is_mutable || (HasCaches && block.extras().cache != nullptr);
  const int at = part * f.part_bytes;
  const auto for_rows = [&](const auto& load_one) {
    WARPRANK_UNROLL
    for (int k = 0; k < N; ++k) {
      if (rows[k] != nullptr) load_one(raw[k].words, rows[k]);
    }
  };
  if (f.part_bytes == 16) {
    for_rows([&](uint32_t* to, const unsigned char* row) { load_found_words<4>(may_change, row + at, to); });
  } else if (f.part_bytes == 8) {
    for_rows([&](uint32_t* to, const unsigned char* row) { load_found_words<2>(may_change, row + at, to); });
  } else {
    for_rows([&](uint32_t* to, const unsigned char* row) {
      load_found_words<1>(may_change, row + at / 4 * 4, to);
      to[0] >>= 8 * (at % 4);
    });
  }
  if (f.type != RowType::i8) return;
  const int scale_at = (static_cast<int>(f.parts) * f.part_size + 3) / 4 * 4;
  for_rows([&](uint32_t* to, const unsigned char* row) {
    load_found_words<1>(may_change, row + scale_at, to + 2);
    load_found_words<1>(may_change, row + scale_at + 4, to + 3);
  });
}
/// The rows of lanes first, first + step and so on; null from lane `end` on.
template <int N>
WARPRANK_DEVICE void take_rows(const unsigned char* mine, int first, int step, int end,
                               const unsigned char* (&rows)[N]) {
  WARPRANK_UNROLL
  for (int k = 0; k < N; ++k) {
    const int source = first + k * step;
    const uint64_t row =
        device::shuffle(device::full_warp, reinterpret_cast<uint64_t>(mine), source % device::warp_size);
    rows[k] = source < end ? reinterpret_cast<const unsigned char*>(row) : nullptr;
  }
}

/// Makes rows of y those that ids name.
template <bool HasCaches>
WARPRANK_DEVICE void copy_keys(const Block& block) {
  using namespace device;  // NOLINT: a device function
  const Record& f = block.f();
  const Cursor& c = block.cursor();
  bool has_more = false;  // none has
  for (bool has = c.has_span; has; has = next_span(block)) {
    const int keys = in_register(static_cast<int>(f.unit) / num_warps);  // of a warp at a time
    for (int begin = (c.begin * num_warps + fresh_thread_rank() / warp_size) * keys; begin < c.n;
         begin += c.step * num_warps * keys) {
      const int end = c.n - begin < keys ? c.n - begin : keys, i = begin + fresh_thread_rank() % warp_size;
      const bool is_id = i < begin + end;
      const FoundKey found = find_key<HasCaches>(block, is_id ? RowIds{block, c.values, has_more}(i) : 0, is_id);
      count(block, is_id, found.is_missing, found.is_padding, found.is_padding);
      const uint32_t defaults = ballot(full_warp, found.is_missing && f.default_row != nullptr);
      for (int pass = 0; pass < static_cast<int>(f.parts); pass += warp_size) {
        const int lane = fresh_thread_rank() % warp_size, groups = warp_size >> f.lanes_log2;
        const int part = pass + (lane & ((1 << f.lanes_log2) - 1));
        for (int first = lane >> f.lanes_log2; any(full_warp, first < end); first += in_flight * groups) {
          const unsigned char* rows[in_flight];
          RowsInFlight raw = {};
          take_rows(found.row, first, groups, part < static_cast<int>(f.parts) ? end : 0, rows);
          load_found_parts<HasCaches>(block, rows, part, raw);
          if (part >= static_cast<int>(f.parts)) continue;
          // Not unrolled, or there would be as many copies of the code for all types: the others move up.
          WARPRANK_ROLLED
          for (int at = first, last = first + in_flight * groups; at < end && at < last; at += groups) {
            const bool is_default = (defaults >> at & 1) != 0;
            if (is_default || !are_as_stored(f)) {
              store_row(f, c.row + begin + at, part, raw[0], is_default);
            } else if (f.part_bytes == 16) {
              store_raw<4>(f, c.row + begin + at, part, raw[0]);
            } else if (f.part_bytes == 8) {
              store_raw<2>(f, c.row + begin + at, part, raw[0]);
            } else {
              store_row(f, c.row + begin + at, part, raw[0], false);
            }
            WARPRANK_UNROLL
            for (int other = 0; other + 1 < in_flight; ++other) raw[other] = raw[other + 1];
          }
        }
      }
    }
  }
}

/// Adds ids of a bag, or of a piece: of each `groups` times as many as lanes share a row, those of group `group`. All
/// lanes of the warp call, those without a bag with one of length 0.
template <bool HasCaches>
WARPRANK_DEVICE void add_keys(const Block& block, const BagIds& bag, int group, int groups, int part, BagSums& sums) {
  using namespace device;  // NOLINT: a device function
  const Record& f = block.f();
  Shared& shared = block.shared;
  const auto lanes = [&] { return 1 << f.lanes_log2; };
  const auto read_id = [&](int i) {
    if (i >= bag.length) return int64_t{0};
    return bag.ids == nullptr ? f.requests.default_id : load_id(bag.ids, i, f.has(Flag::narrow_ids));
  };
  shared.divisor[fresh_thread_rank()] = 0, shared.missing_weight[fresh_thread_rank()] = 0;
  int i = group * lanes() + (fresh_thread_rank() & (lanes() - 1));
  int64_t id = read_id(i);
  while (any(full_warp, i < bag.length)) {
    const FoundKey found = find_key<HasCaches>(block, id, i < bag.length, part < warp_size);
    float weight = 1;  // of what is not there, too
    if (i < bag.length && !found.is_padding) {
      ++sums.count;
      if (found.is_missing) ++sums.missing;
      if (f.has(Flag::weighted)) {
        const float of_id = weight_of(block, bag, i);
        const int thread = fresh_thread_rank();
        shared.divisor[thread] += (f.has(Flag::sqrtn) ? double{of_id} : 1.0) * of_id;
        if (found.is_missing) {
          shared.missing_weight[thread] += of_id;
        } else {
          weight = of_id;
        }
      }
    }
    i += groups * lanes();
    id = read_id(i);
    const int first_lane = fresh_thread_rank() % warp_size & ~(lanes() - 1);
    for (int first = 0; first < lanes(); first += in_flight) {
      const unsigned char* rows[in_flight];
      RowsInFlight raw;
      take_rows(found.row, first_lane + first, 1, part < static_cast<int>(f.parts) ? first_lane + lanes() : 0, rows);
      WARPRANK_UNROLL
      for (RawPart& one : raw) one = no_part(f.type, f.has(Flag::max));
      load_found_parts<HasCaches>(block, rows, part, raw);
      const auto weight_at = [&](int k) { return shuffle(full_warp, weight, (first_lane + first + k) % warp_size); };
      add_any_rows(f, raw, weight_at, sums);
    }
  }
  sums.divisor = shared.divisor[fresh_thread_rank()];
  sums.missing_weight = shared.missing_weight[fresh_thread_rank()];
  for (int distance = lanes() / 2; distance > 0; distance /= 2) {
    sums.count += shuffle_xor(full_warp, sums.count, distance);
    sums.missing += shuffle_xor(full_warp, sums.missing, distance);
    sums.divisor += shuffle_xor(full_warp, sums.divisor, distance);
    sums.missing_weight += shuffle_xor(full_warp, sums.missing_weight, distance);
  }
}

}}}  // namespace warprank::v0::detail::embedding_bag
