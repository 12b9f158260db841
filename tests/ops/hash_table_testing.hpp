// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Hash tables of tests: rows that tell their key and version, and a table in device memory with its updates.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/kernel_testing.hpp"
#include "warprank/hash_table/build.hpp"
#include "warprank/ops/hash_table.cuh"
#include "warprank/ops/hash_table_epochs.cuh"

namespace hash_table_testing {

namespace hash_table = warprank::hash_table;
using namespace kernel_testing;  // NOLINT: this is part of tests
using warprank::DType;
using warprank::HashTableView;
using warprank::hash_table::Epoch;
using warprank::hash_table::Epochs;
using warprank::hash_table::Keys;
using warprank::hash_table::Status;

using Row = std::vector<unsigned char>;

/// Bytes that another key, another version or another place would not have.
inline Row row_of(int64_t key, uint64_t version, int64_t bytes) {
  Row row(static_cast<size_t>(bytes));
  uint64_t word = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const uint64_t seed = static_cast<uint64_t>(key) * 31 + version * 0x9e3779b97f4a7c15u + i / 8;
    if (i % 8 == 0) word = warprank::hash_table::fmix64(seed);
    row[i] = static_cast<unsigned char>(word >> (8 * (i % 8)));
  }
  return row;
}

struct Format {
  DType type;
  int64_t dim;

  int64_t bytes() const { return warprank::hash_table::row_bytes(type, dim); }
  std::string text() const { return std::string(warprank::name_of(type)) + " x " + std::to_string(dim); }
};

/// Where a table's keys go: `overflow` buckets, of which a key may be in `overflow_probes`.
struct Size {
  uint64_t buckets;
  uint64_t overflow = 0;
  int overflow_probes = 0;
};

inline HashTableView view_of(const Format& format, const Size& size, bool is_mutable = true) {
  HashTableView view;
  view.type = format.type;
  view.dim = format.dim;
  view.row_bytes = format.bytes();
  view.is_mutable = is_mutable;
  view.shape = warprank::hash_table::shape_of(format.bytes(), is_mutable);
  view.placement = {0x1234567, size.buckets, size.overflow, 2 + size.overflow_probes};
  return view;
}

/// The rows of a version, one behind the other.
inline std::vector<unsigned char> rows_of(const std::vector<int64_t>& keys, uint64_t version, int64_t row_bytes) {
  std::vector<unsigned char> all;
  for (const int64_t key : keys) {
    const Row row = row_of(key, version, row_bytes);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

/// A table that the host has built, in device memory.
class Image {
 public:
  Image(const Format& format, const std::vector<int64_t>& keys, const std::vector<unsigned char>& rows,
        double load_factor, bool is_mutable = false)
      : Image(build(format, keys, rows, load_factor, is_mutable)) {}

  const HashTableView& view() const { return view_; }

 private:
  static warprank::HashTable build(const Format& format, const std::vector<int64_t>& keys,
                                   const std::vector<unsigned char>& rows, double load_factor, bool is_mutable) {
    warprank::HashTableOptions options;
    options.load_factor = load_factor;
    options.threads = 1;
    warprank::HashTableChunk chunk{static_cast<int64_t>(keys.size()), keys.data(), rows.data()};
    std::vector<unsigned char> values, scale, offset;
    if (format.type == DType::i8) {  // which are given apart
      for (auto row = rows.begin(); row != rows.end(); row += format.bytes()) {
        values.insert(values.end(), row, row + format.dim);
        scale.insert(scale.end(), row + format.bytes() - 8, row + format.bytes() - 4);
        offset.insert(offset.end(), row + format.bytes() - 4, row + format.bytes());
      }
      chunk.rows = values.data(), chunk.scale = scale.data(), chunk.offset = offset.data();
    }
    return warprank::build_hash_table({format.type, format.dim, is_mutable}, chunk, options);
  }
  explicit Image(const warprank::HashTable& table)
      : view_(table.view()), memory_(std::vector<unsigned char>(table.image().begin(), table.image().end())) {
    const auto move = [&](auto* address) {
      const int64_t offset = reinterpret_cast<const unsigned char*>(address) - table.image().data();
      return reinterpret_cast<decltype(address)>(memory_.data() + offset);
    };
    view_.buckets = move(view_.buckets);
    view_.size = move(view_.size);
  }

  HashTableView view_;
  DeviceArray<unsigned char> memory_;
};

/// Values that a stream copies to the device when it comes so far: nothing waits.
template <class Value>
class Staged {
 public:
  Staged(std::vector<Value> values, Stream stream)
      : values_(std::move(values)), on_device_(static_cast<int64_t>(values_.size())) {
    copy(on_device_.data(), values_.data(), on_device_.size() * static_cast<int64_t>(sizeof(Value)), stream);
  }
  const std::vector<Value>& values() const { return values_; }
  const Value* data() const { return on_device_.data(); }
  Value* data() { return on_device_.data(); }
  int64_t size() const { return on_device_.size(); }
  std::vector<Value> read() const { return on_device_.read(); }

 private:
  const std::vector<Value> values_;
  DeviceArray<Value> on_device_;
};

/// A look-up in flight: what it reads and where it answers.
class LookUp {
 public:
  LookUp(const HashTableView& table, const std::vector<int64_t>& keys, Stream stream)
      : row_bytes_(table.row_bytes),
        keys_(keys, stream),
        rows_(std::vector<unsigned char>(keys.size() * static_cast<size_t>(row_bytes_), unwritten), stream),
        found_(keys_.size()) {
    warprank::hash_table::find(table, {keys_.data(), keys_.size()}, rows_.data(), row_bytes_, found_.data(), stream);
  }

  /// Waits, and gives each key's row or nothing; fails where a row without a key was written.
  std::vector<std::optional<Row>> rows() const {
    const std::vector<uint8_t> found = found_.read();
    const std::vector<unsigned char> all = rows_.read();
    std::vector<std::optional<Row>> result;
    for (size_t i = 0; i < found.size(); ++i) {
      const auto begin = all.begin() + static_cast<int64_t>(i) * row_bytes_;
      Row row(begin, begin + row_bytes_);
      if (found[i] == 0) {
        EXPECT_EQ(row, Row(row.size(), unwritten)) << "written, but not found";
      }
      result.push_back(found[i] == 0 ? std::nullopt : std::optional<Row>(std::move(row)));
    }
    return result;
  }

 private:
  static constexpr unsigned char unwritten = 0x5a;
  int64_t row_bytes_;
  Staged<int64_t> keys_;
  Staged<unsigned char> rows_;
  DeviceArray<uint8_t> found_;
};

/// An export in flight.
class Export {
 public:
  Export(const HashTableView& table, int64_t capacity, Stream stream)
      : row_bytes_(table.row_bytes),
        keys_(capacity),
        rows_(capacity * row_bytes_),
        count_(std::vector<uint64_t>{0}, stream) {
    hash_table::export_all(table, keys_.data(), rows_.data(), row_bytes_, capacity, count_.data(), stream);
  }

  /// Waits, and gives the keys and rows.
  std::vector<std::pair<int64_t, Row>> read() const {
    const auto count = static_cast<int64_t>(count_.read()[0]);
    const std::vector<int64_t> keys = keys_.read(0, count);
    const std::vector<unsigned char> rows = rows_.read(0, count * row_bytes_);
    std::vector<std::pair<int64_t, Row>> result;
    for (int64_t i = 0; i < count; ++i) {
      const auto row = rows.begin() + i * row_bytes_;
      result.emplace_back(keys[static_cast<size_t>(i)], Row(row, row + row_bytes_));
    }
    return result;
  }

 private:
  int64_t row_bytes_;
  DeviceArray<int64_t> keys_;
  DeviceArray<unsigned char> rows_;
  Staged<uint64_t> count_;
};

/// An update: gives keys rows of a version, or erases them when there is none.
class Update {
 public:
  /// Its memory alone: a GPU may not allocate while launches wait for one another.
  Update(const HashTableView& table, const std::vector<int64_t>& keys, std::optional<uint64_t> version, Stream stream)
      : version(version),
        statuses(keys.size()),
        table_(table),
        keys_(keys, stream),
        rows_(rows_of(keys, version.value_or(0), table.row_bytes), stream),
        statuses_(keys_.size()) {}
  /// In flight.
  template <class Protocol = warprank::detail::hashed::UpdateProtocol>
  Update(const HashTableView& table, const std::vector<int64_t>& keys, std::optional<uint64_t> version,
         const Epoch& epoch, Stream stream, Protocol protocol = {})
      : Update(table, keys, version, stream) {
    launch(epoch, stream, protocol);
    copy_statuses(stream);
  }

  template <class Protocol = warprank::detail::hashed::UpdateProtocol>
  void launch(const Epoch& epoch, Stream stream, Protocol = {}) {
    const Keys batch{keys_.data(), {keys_.size()}};
    if (version) {
      const auto rows =
          warprank::detail::hashed::rows_for(table_, rows_.data(), table_.row_bytes, batch.count.capacity);
      warprank::detail::hashed::launch_insert_or_assign<Protocol>(table_, batch, rows, epoch, statuses_.data(), stream);
    } else {
      warprank::detail::hashed::launch_erase<Protocol>(table_, batch, epoch, statuses_.data(), stream);
    }
  }
  void copy_statuses(Stream stream) { copy(statuses.data(), statuses_.data(), statuses_.size(), stream); }

  const std::vector<int64_t>& keys() const { return keys_.values(); }

  const std::optional<uint64_t> version;
  std::vector<Status> statuses;  ///< once the stream has come so far

 private:
  const HashTableView table_;
  Staged<int64_t> keys_;
  Staged<unsigned char> rows_;
  DeviceArray<Status> statuses_;
};

/// A mutable table without keys, its updates, and a stream of readers.
class Table {
 public:
  Table(const Format& format, const Size& size)
      : view_(view_of(format, size)),
        buckets_(static_cast<int64_t>(view_.num_buckets()) * view_.shape.bucket_bytes),
        size_(1),
        readers(create_stream()),
        updates(create_stream()) {
    view_.buckets = buckets_.data();
    view_.size = size_.data();
    warprank::hash_table::clear(view_, updates);
    synchronize();
    epochs.add_reader(readers);
  }

  const HashTableView& view() const { return view_; }
  uint64_t size() const { return size_.read()[0]; }
  /// A word of a bucket's line.
  uint64_t word(uint64_t bucket, int index) const {
    uint64_t value = 0;
    synchronize();
    copy(&value, &view_.line(bucket)[index], sizeof value);
    synchronize();
    return value;
  }
  int64_t capacity() const {
    return static_cast<int64_t>(view_.num_buckets()) * warprank::hash_table::header_positions;
  }

  std::vector<Status> insert(const std::vector<int64_t>& keys, uint64_t version) {
    return change(keys, version, epochs.begin());
  }
  /// As if no epoch had become safe since `before`.
  std::vector<Status> insert_as_early_as(const Epoch& before, const std::vector<int64_t>& keys, uint64_t version) {
    return change(keys, version, {epochs.begin().current, before.safe});
  }
  std::vector<Status> erase(const std::vector<int64_t>& keys) { return erase(keys, epochs.begin()); }
  std::vector<Status> erase(const std::vector<int64_t>& keys, const Epoch& epoch) {
    return change(keys, std::nullopt, epoch);
  }
  std::vector<std::optional<Row>> find(const std::vector<int64_t>& keys) { return LookUp(view_, keys, readers).rows(); }

  /// Waits until all that was retired may be used again.
  void pass_grace() {
    for (int step = 0; step < 3; ++step) {
      synchronize();
      epochs.poll();
    }
  }

 private:
  std::vector<Status> change(const std::vector<int64_t>& keys, std::optional<uint64_t> version, const Epoch& epoch) {
    const Update update(view_, keys, version, epoch, updates);
    epochs.end(updates);
    synchronize();
    return update.statuses;
  }

  HashTableView view_;
  DeviceArray<unsigned char> buckets_;
  DeviceArray<uint64_t> size_;

 public:
  Stream readers, updates;
  Epochs epochs;
};

// ---- Protocols that lack something

struct PublishRelaxed : warprank::detail::hashed::UpdateProtocol {
  static constexpr auto publish = warprank::device::Order::relaxed;
};
struct UseAgainAtOnce : warprank::detail::hashed::UpdateProtocol {
  static constexpr bool waits_for_readers = false;
};
struct KeepErasedKeys : warprank::detail::hashed::UpdateProtocol {
  static constexpr bool overwrites_erased_keys = false;
};
struct WriteInPlace : warprank::detail::hashed::UpdateProtocol {
  static constexpr bool writes_aside = false;
};
struct TakeNoLock : warprank::detail::hashed::UpdateProtocol {
  static constexpr bool locks = false;
};

// ---- Kernels of tests

/// Waits for a flag that another launch sets; false when it gave up, which it does on a GPU after about a second:
/// nobody promises there that two launches run side by side.
WARPRANK_DEVICE bool await(const uint32_t* flag) {
  using namespace warprank::device;  // NOLINT: a device function
  constexpr int64_t patience = 1 << 20;
  for (int64_t look = 0; !on_gpu || look < patience; ++look) {
    if (load<Order::acquire, Scope::device>(flag) != 0) return true;
  }
  return false;
}

WARPRANK_KERNEL(1, 1)
wait_for(const uint32_t* flag) { await(flag); }

WARPRANK_KERNEL(1, 1)
set(uint32_t* flag) {
  warprank::device::store<warprank::device::Order::release, warprank::device::Scope::device>(flag, 1u);
}

/// The slowest reader: looks for a key in its first bucket, and between the keys and the map of the line, or the other
/// way round, says so in flags[0] and waits for flags[1]. found [3]: whether, the first 4 bytes of the row, and whether
/// it gave up waiting.
template <bool MapFirst>
WARPRANK_KERNEL(32, 1)
read_in_two_halves(HashTableView table, uint64_t key, uint32_t* flags, uint32_t* found) {
  using namespace warprank::device;          // NOLINT: a kernel
  using namespace warprank::detail::hashed;  // NOLINT: a kernel
  const unsigned char* bucket = table.bucket(table.placement.first_bucket(table.placement.hash(key)));
  const bool is_first = (LineTile::rank() == LineTile::size - 1) == MapFirst;
  LinePart part{};
  if (is_first) part = load_line_part(table, bucket);
  sync_warp();
  if (lane_index() == 0) {
    store<Order::release, Scope::device>(&flags[0], 1u);
    store(&found[2], await(&flags[1]) ? 0u : 1u);
  }
  sync_warp();
  if (!is_first) part = load_line_part(table, bucket);
  const int slot = match_lines(part, key).slot();
  acquire_rows(table);
  if (lane_index() != 0) return;
  store(&found[0], slot == hash_table::no_slot ? 0u : 1u);
  if (slot == hash_table::no_slot) return;
  const auto* row = reinterpret_cast<const uint32_t*>(bucket + table.shape.rows_begin + slot * table.shape.row_stride);
  store(&found[1], load<Order::relaxed, Scope::device>(row));
}

}  // namespace hash_table_testing
