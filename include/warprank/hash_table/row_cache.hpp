// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Some of a table's rows in memory of a fixed size: a hash table whose keys all lie in their first bucket, 14 to each,
/// so that a look-up reads one bucket whether it finds the key or not. If the bucket is full, a new key takes the place
/// of the key that is asked for least.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "warprank/core/page_pool.hpp"
#include "warprank/hash_table/build.hpp"
#include "warprank/hash_table/change.hpp"
#include "warprank/hash_table/frequency_sketch.hpp"
#include "warprank/hash_table/hash_table.hpp"
#include "warprank/hash_table/stored_rows.hpp"

namespace warprank { inline namespace v0 {

/// The key of a bucket that would give way to a new one; position -1: none.
struct RowVictim {
  int position = -1;
  uint64_t key = 0;
};

/// Any threads may look up at once, while no thread changes the cache. Any thread may call asked_for.
class RowCache {
 public:
  /// Takes at most `bytes`, at least least_bytes(rows), and 4 bytes a key more for the sketch.
  RowCache(const StoredRows& rows, int64_t bytes, const std::shared_ptr<PagePool>& pages = nullptr)
      : table_(build(rows, bytes, pages)), sketch_(num_places()) {}

  static int64_t least_bytes(const StoredRows& rows) {
    return bytes_of(static_cast<int64_t>(hash_table::min_buckets), rows);
  }

  const HashTableView& view() const { return table_.view(); }
  const unsigned char* find(int64_t key) const { return table_.find(key); }
  int64_t size() const { return table_.size(); }
  int64_t bytes() const { return table_.bytes() + sketch_.bytes(); }
  /// The number of keys for which there is room.
  int64_t num_places() const {
    return static_cast<int64_t>(table_.view().placement.num_buckets) * hash_table::header_positions;
  }

  /// Counts a key that was asked for. Callers may count only some, each with the same probability.
  void asked_for(int64_t key) { sketch_.add(key); }
  /// Halves all counts.
  void age() { sketch_.halve(); }

  /// Chooses while other threads look up, so that insert_or_assign takes little time. Only the thread that inserts may
  /// call it.
  RowVictim victim_for(int64_t key, uint64_t generation) {
    const HashTableView& table = view();
    const hash_table::Placement& placement = table.placement;
    const uint64_t* line = table.line(placement.first_bucket(placement.hash(static_cast<uint64_t>(key))));
    constexpr uint32_t all = (1u << hash_table::header_positions) - 1;
    if ((hash_table::held_positions(line[hash_table::map_word]) & all) != all) return {};
    const int position = least_asked_for(line, Recent::from(line[hash_table::state_word], generation).positions());
    return {position, line[position]};
  }

  /// How a key got its row: there was room, it was there before, or another key was evicted.
  enum class Admission { had_room, updated, evicted };
  /// `generation` never falls: keys of this generation and the one before leave only if there are no others. 0: the key
  /// is of no generation.
  /// `victim` was chosen before; if it has gone meanwhile, another key leaves.
  Admission insert_or_assign(int64_t key, const unsigned char* row, uint64_t generation = 0, RowVictim victim = {}) {
    const HashTableView table = first_buckets();
    const hash_table::Placement& placement = table.placement;
    const uint64_t bucket = placement.first_bucket(placement.hash(static_cast<uint64_t>(key)));
    uint64_t* line = table.line(bucket);
    Recent recent = Recent::from(line[hash_table::state_word], generation);
    const hash_table::Status status = hash_table::insert_or_assign(table, key, row);
    int position = hash_table::place_of(table, static_cast<uint64_t>(key)).position;
    if (status == hash_table::Status::full) {
      const bool is_there = victim.position >= 0 && line[victim.position] == victim.key &&
                            (recent.positions() >> victim.position & 1) == 0;
      position = is_there ? victim.position : least_asked_for(line, recent.positions());
      std::memcpy(table.row(bucket, hash_table::slot_at(line[hash_table::map_word], position)), row,
                  static_cast<size_t>(table.row_bytes));
      line[position] = static_cast<uint64_t>(key);
    }
    if (generation != 0) {
      recent.now |= 1u << position;
      line[hash_table::state_word] = recent.word();
    }
    return status == hash_table::Status::full       ? Admission::evicted
           : status == hash_table::Status::inserted ? Admission::had_room
                                                    : Admission::updated;
  }
  /// Changes the row of a key that has one; returns whether it had one.
  bool assign(int64_t key, const unsigned char* row) {
    if (find(key) == nullptr) return false;
    hash_table::insert_or_assign(first_buckets(), key, row);
    return true;
  }
  bool erase(int64_t key) { return hash_table::erase(first_buckets(), key) == hash_table::Status::erased; }

  int64_t num_buckets() const { return static_cast<int64_t>(table_.view().placement.num_buckets); }
  /// Erases all keys of buckets [begin, end).
  void clear_buckets(int64_t begin, int64_t end) {
    const HashTableView table = first_buckets();
    for (int64_t bucket = begin; bucket < end; ++bucket) {
      const uint64_t* line = table.line(static_cast<uint64_t>(bucket));
      for (int position = 0; position < hash_table::header_positions; ++position)
        if (hash_table::slot_at(line[hash_table::map_word], position) != hash_table::no_slot)
          hash_table::erase(table, static_cast<int64_t>(line[position]));
    }
  }

 private:
  static int64_t bytes_of(int64_t buckets, const StoredRows& rows) {
    // A table that may change has overflow buckets, which this one leaves empty.
    const int64_t overflow = std::max<int64_t>(12, buckets / 64);
    return hash_table::header_bytes + (buckets + overflow) * hash_table::shape_of(rows.row_bytes(), true).bucket_bytes;
  }
  static HashTable build(const StoredRows& rows, int64_t bytes, const std::shared_ptr<PagePool>& pages) {
    int64_t buckets = bytes / hash_table::shape_of(rows.row_bytes(), true).bucket_bytes;
    const auto least = static_cast<int64_t>(hash_table::min_buckets);
    while (buckets > least && bytes_of(buckets, rows) > bytes) buckets -= std::max<int64_t>(1, buckets / 1024);
    HashTableOptions options;
    options.load_factor = 1;
    options.capacity = std::max(buckets, least) * hash_table::header_positions;
    options.threads = 1;
    options.pages = pages;
    return build_hash_table({rows.type, rows.dim, true}, HashTableChunk(), options);
  }

  /// A view of the table in which keys have no place but their first bucket.
  HashTableView first_buckets() const {
    HashTableView table = table_.view();
    table.placement.max_probes = 1;
    return table;
  }

  /// The positions of a bucket with keys of the generation that was seen last, and of the one before. This table has
  /// them in the state word of a bucket, where other tables have retired slots and positions.
  struct Recent {
    uint32_t now = 0, before = 0;
    uint64_t generation = 0;

    static Recent from(uint64_t word, uint64_t generation) {
      const Recent last{static_cast<uint32_t>(word & all), static_cast<uint32_t>(word >> 14 & all), word >> 28};
      if (generation == 0 || generation == last.generation) return last;
      return {0, generation == last.generation + 1 ? last.now : 0, generation};
    }
    uint64_t word() const { return uint64_t{now} | uint64_t{before} << 14 | generation << 28; }
    uint32_t positions() const { return (now | before) == all ? 0 : now | before; }
    static constexpr uint32_t all = (1u << hash_table::header_positions) - 1;
  };

  /// A position of a full bucket, outside the positions `but`. Among equals it goes round, so that the newest key does
  /// not leave first.
  int least_asked_for(const uint64_t* line, uint32_t but) {
    constexpr int count = hash_table::header_positions;
    const int begin = turn_ = (turn_ + 1) % count;
    int least = -1, least_estimate = FrequencySketch::most + 1;
    for (int i = 0; i < count; ++i) {
      const int position = (begin + i) % count;
      if ((but >> position & 1) != 0) continue;
      const int estimate = sketch_.estimate(static_cast<int64_t>(line[position]));
      if (estimate < least_estimate) least = position, least_estimate = estimate;
    }
    return least;
  }

  HashTable table_;
  FrequencySketch sketch_;
  int turn_ = 0;
};

}}  // namespace warprank::v0
