// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Changes to a hash table of the header layout while others read it. A tile of 8 lanes changes one key.
///
/// Readers take no lock and write nothing. They see a bucket's line in pieces, in any order; this is why they find the
/// right row all the same:
///  1. A row is written into a slot that the map does not name, and published with one release store of the map, which
///     readers acquire. All later stores of a map are releases too, each after the lock of the one before was acquired:
///     whichever map a reader sees, the rows it names are whole.
///  2. A slot is written again only when no reader can still hold its address: *retired* in epoch e, it is free for
///     updates with safe >= e. Epoch e is safe when its updates are done and then every reader that was launched until
///     that was seen is done; a reader launched later sees maps that do not name the slot (hash_table_epochs.cuh).
///  3. The same goes for positions. A reader may combine an old key with a newer map. Both are of the same position
///     only if the key was erased, and its position given to another one, while the reader was running. But positions
///     are retired too, and erasing leaves a foreign key, which nobody looks for in this bucket: whoever runs when the
///     position is given away again was launched after the key was erased, and reads the foreign key or the new one.
///     A new key with an old map is not there yet; nor is one whose old bucket count says that nothing was displaced,
///     since that count is raised before a displaced key is published.
///  4. A key has one copy. Whoever changes a key holds the lock of its first bucket, wherever the key lies, and of the
///     bucket that changes. No key ever moves, so one that stays in the table is found by every reader.
///  5. Nothing waits for ever: locks are tried a bounded number of times, a second one only behind the first.

#include <cstdint>

#include "warprank/hash_table/update.hpp"
#include "warprank/ops/detail/hash_table/find.cuh"
#include "warprank/ops/detail/hash_table/rows.cuh"

namespace warprank { inline namespace v0 { namespace detail::hashed {

/// What keeps readers safe, and the only right choice. Tests take one part away at a time, and see it missed.
struct UpdateProtocol {
  static constexpr device::Order publish = device::Order::release;
  static constexpr bool locks = true;
  static constexpr bool waits_for_readers = true;
  static constexpr bool overwrites_erased_keys = true;
  static constexpr bool writes_aside = true;
  static constexpr int num_positions = hash_table::header_positions;
};
/// Of caches of rows, which have something else at the last position.
struct CacheProtocol : UpdateProtocol {
  static constexpr int num_positions = row_cache::num_positions;
};

/// What a line says of a key: the same for all lanes of the tile.
struct LineMatch {
  int place;     ///< the position (header) or slot (inline) that holds the key, -1 when none does
  uint64_t map;  ///< the word with the map
};

/// Looks for the tile's key in a line. A key that lies where the map holds nothing is not there.
WARPRANK_DEVICE LineMatch match_line(const HashTableView& table, const LinePart& part, uint64_t key) {
  const bool in_line = table.shape.layout == hash_table::Layout::in_line;
  const uint64_t map = LineTile::shuffle(in_line ? part[1] : part[0], LineTile::size - 1);
  const int first_place = 2 * LineTile::rank() - hash_table::key_word(table.shape, 0);
  int place = -1;
  WARPRANK_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int p = first_place + i;
    if (part[i] != key || p < 0 || p >= table.shape.num_keys()) continue;
    const bool held = in_line ? (map >> p & 1) != 0 : hash_table::slot_at(map, p) != hash_table::no_slot;
    if (held) place = p;
  }
  const uint32_t hit = LineTile::ballot(place >= 0);
  if (hit != 0) place = LineTile::shuffle(place, device::first_bit(hit));
  return {place, map};
}

template <class Protocol = UpdateProtocol>
class Update {
  using Status = hash_table::Status;
  using Displaced = hash_table::Displaced;

 public:
  WARPRANK_DEVICE Update(const HashTableView& table, const hash_table::Epoch& epoch) : table_(table), epoch_(epoch) {}

  /// Gives the tile's key a row, which is read from `row`.
  WARPRANK_DEVICE Status insert_or_assign(uint64_t key, const GivenRow& row) const {
    return with_first_bucket(key, [&](Bucket& first, uint64_t hash, Status& status) {
      const LineMatch here = match_line(table_, first.part, key);
      if (here.place >= 0) {
        status = replace(first, here.place, row);
        return true;
      }
      Bucket other;
      const int probe = find_displaced(first, key, hash);
      if (probe > 0) {
        if (!lock_behind(first, other, table_.placement.bucket(hash, probe))) return false;
        status = replace(other, match_line(table_, other.part, key).place, row);
        unlock(other);
        return true;
      }
      return insert(first, key, hash, row, status);
    });
  }

  /// Takes the tile's key out of the table.
  WARPRANK_DEVICE Status erase(uint64_t key) const {
    return with_first_bucket(key, [&](Bucket& first, uint64_t hash, Status& status) {
      status = Status::erased;
      const LineMatch here = match_line(table_, first.part, key);
      if (here.place >= 0) {
        remove(first, here.place);
        return true;
      }
      const int probe = find_displaced(first, key, hash);
      if (probe == 0) {
        status = Status::absent;
        return true;
      }
      Bucket other;
      if (!lock_behind(first, other, table_.placement.bucket(hash, probe))) return false;
      remove(other, match_line(table_, other.part, key).place);
      unlock(other);
      first.map = hash_table::with_one_less(first.map, displaced_to(probe));
      publish(first);
      return true;
    });
  }

 private:
  static constexpr int max_attempts = 4096;
  static constexpr int looks = 4;      // at a lock that others hold, in one attempt
  static constexpr int patience = 64;  // attempts at a second lock

  /// A bucket as the tile knows it: the same for all lanes, but for their parts of the line.
  struct Bucket {
    uint64_t index;
    LinePart part;
    uint64_t map;
    hash_table::BucketState state;

    WARPRANK_DEVICE uint32_t free_slots() const {
      return ~(hash_table::held_slots(map) | state.retired_slots) & ((1u << hash_table::header_slots) - 1);
    }
    WARPRANK_DEVICE uint32_t free_positions() const {
      return ~(hash_table::held_positions(map) | state.retired_positions) & ((1u << Protocol::num_positions) - 1);
    }
    WARPRANK_DEVICE bool has_room() const { return free_slots() != 0 && free_positions() != 0; }
    /// Whether there will be room once nobody reads what is retired.
    WARPRANK_DEVICE bool will_have_room() const { return state.retired_positions != 0 || free_positions() != 0; }
  };

  static WARPRANK_DEVICE Displaced displaced_to(int probe) {
    return probe == 1 ? Displaced::spilled : Displaced::overflowed;
  }

  /// Calls change(first, hash, status) with the lock of the key's first bucket until it returns true.
  template <class Change>
  WARPRANK_DEVICE Status with_first_bucket(uint64_t key, Change change) const {
    const uint64_t hash = table_.placement.hash(key);
    for (int attempt = 0; attempt < max_attempts; ++attempt) {
      Bucket first;
      if (!try_lock(first, table_.placement.first_bucket(hash))) continue;
      Status status = Status::deferred;
      const bool done = change(first, hash, status);
      unlock(first);
      if (done) return status;
    }
    return Status::deferred;
  }

  /// Reads a bucket. Without its lock, what is found there may be gone in the next moment.
  WARPRANK_DEVICE Bucket read(uint64_t index) const {
    Bucket bucket{index, load_line_part(table_, table_.bucket(index)), 0, {}};
    bucket.map = LineTile::shuffle(bucket.part[0], LineTile::size - 1);
    bucket.state = hash_table::BucketState::from(LineTile::shuffle(bucket.part[1], LineTile::size - 1));
    if (bucket.state.epoch <= epoch_.safe || !Protocol::waits_for_readers) {
      bucket.state.retired_slots = bucket.state.retired_positions = 0;
    }
    return bucket;
  }

  WARPRANK_DEVICE bool try_lock(Bucket& bucket, uint64_t index) const {
    using namespace device;  // NOLINT: a device function
    uint64_t* state = &table_.line(index)[hash_table::state_word];
    bool locked = !Protocol::locks;
    if (Protocol::locks && LineTile::rank() == 0) {
      uint64_t free = load<Order::relaxed, Scope::device>(state);
      for (int look = 1; look < looks && (free & hash_table::lock_bit) != 0; ++look) {
        free = load<Order::relaxed, Scope::device>(state);
      }
      locked = (free & hash_table::lock_bit) == 0 &&
               compare_exchange<Order::acquire, Scope::device>(state, free, free | hash_table::lock_bit) == free;
    }
    if (!LineTile::any(locked)) return false;
    LineTile::sync();
    bucket = read(index);
    return true;
  }

  /// Locks a second bucket. Waits only for one of a higher index, so that no tiles wait for each other in a circle.
  WARPRANK_DEVICE bool lock_behind(const Bucket& first, Bucket& other, uint64_t index) const {
    const int attempts = index > first.index ? patience : 1;
    for (int attempt = 0; attempt < attempts; ++attempt) {
      if (try_lock(other, index)) return true;
    }
    return false;
  }

  WARPRANK_DEVICE void unlock(const Bucket& bucket) const {
    using namespace device;  // NOLINT: a device function
    LineTile::sync();
    if (LineTile::rank() == 0) {
      store<Order::release, Scope::device>(&table_.line(bucket.index)[hash_table::state_word], bucket.state.word());
    }
  }

  /// Shows readers the bucket's map, and everything that was written before.
  WARPRANK_DEVICE void publish(const Bucket& bucket) const {
    using namespace device;  // NOLINT: a device function
    LineTile::sync();
    if (LineTile::rank() == 0) {
      store<Protocol::publish, Scope::device>(&table_.line(bucket.index)[hash_table::map_word], bucket.map);
    }
  }

  WARPRANK_DEVICE void store_key(const Bucket& bucket, int position, uint64_t key) const {
    using namespace device;  // NOLINT: a device function
    if (LineTile::rank() == 0) store<Order::relaxed, Scope::device>(&table_.line(bucket.index)[position], key);
  }

  WARPRANK_DEVICE void retire(Bucket& bucket, int slot, uint32_t positions) const {
    bucket.state.retired_slots |= 1u << slot;
    bucket.state.retired_positions |= positions;
    if (bucket.state.epoch < epoch_.current) bucket.state.epoch = epoch_.current;
  }

  WARPRANK_DEVICE Status replace(Bucket& bucket, int position, const GivenRow& row) const {
    const uint32_t free = bucket.free_slots();
    if (free == 0) return Status::deferred;
    const int before = hash_table::slot_at(bucket.map, position);
    const int slot = Protocol::writes_aside ? device::first_bit(free) : before;
    write_row(table_, bucket.index, slot, row);
    bucket.map = hash_table::with_slot(bucket.map, position, slot);
    publish(bucket);
    retire(bucket, before, 0);
    return Status::updated;
  }

  WARPRANK_DEVICE void remove(Bucket& bucket, int position) const {
    const int slot = hash_table::slot_at(bucket.map, position);
    bucket.map = hash_table::with_slot(bucket.map, position, hash_table::no_slot);
    publish(bucket);
    if (Protocol::overwrites_erased_keys) store_key(bucket, position, table_.placement.foreign_key(bucket.index));
    retire(bucket, slot, 1u << position);
  }

  WARPRANK_DEVICE void add(Bucket& bucket, uint64_t key, const GivenRow& row) const {
    const int slot = device::first_bit(bucket.free_slots()), position = device::first_bit(bucket.free_positions());
    write_row(table_, bucket.index, slot, row);
    store_key(bucket, position, key);
    bucket.map = hash_table::with_slot(bucket.map, position, slot);
    publish(bucket);
  }

  /// The probe at which a key lies that is not in its first bucket, 0 when it is nowhere. The lock of the first bucket
  /// keeps it there.
  WARPRANK_DEVICE int find_displaced(const Bucket& first, uint64_t key, uint64_t hash) const {
    const int begin = hash_table::has(first.map, Displaced::spilled) ? 1 : 2;
    const int end = hash_table::has(first.map, Displaced::overflowed) ? table_.placement.max_probes : 2;
    for (int probe = begin; probe < end; ++probe) {
      const LinePart part = load_line_part(table_, table_.bucket(table_.placement.bucket(hash, probe)));
      if (match_line(table_, part, key).place >= 0) return probe;
    }
    return 0;
  }

  /// Inserts a key that is nowhere; false when a lock could not be had.
  WARPRANK_DEVICE bool insert(Bucket& first, uint64_t key, uint64_t hash, const GivenRow& row, Status& status) const {
    status = Status::inserted;
    if (first.has_room()) {
      add(first, key, row);
      return true;
    }
    bool will_have_room = first.will_have_room();
    for (int probe = 1; probe < table_.placement.max_probes; ++probe) {
      const uint64_t index = table_.placement.bucket(hash, probe);
      Bucket other = read(index);
      if (!other.has_room()) {  // nor will it in this epoch
        will_have_room |= other.will_have_room();
        continue;
      }
      if (!lock_behind(first, other, index)) return false;
      const bool has_room = other.has_room();
      if (has_room) {
        first.map = hash_table::with_one_more(first.map, displaced_to(probe));
        publish(first);
        add(other, key, row);
      }
      will_have_room |= other.will_have_room();
      unlock(other);
      if (has_room) return true;
    }
    status = will_have_room ? Status::deferred : Status::full;
    return true;
  }

  const HashTableView& table_;
  const hash_table::Epoch epoch_;
};

}}}  // namespace warprank::v0::detail::hashed
