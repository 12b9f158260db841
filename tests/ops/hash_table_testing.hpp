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
#include "warprank/ops/hash_table.cuh"
#include "warprank/ops/hash_table_epochs.cuh"

namespace hash_table_testing {

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

/// A look-up in flight: what it reads and where it answers.
class LookUp {
 public:
  LookUp(const HashTableView& table, std::vector<int64_t> keys, Stream stream)
      : keys(std::move(keys)),
        row_bytes_(table.row_bytes),
        on_device_(this->keys),
        rows_(static_cast<int64_t>(this->keys.size()) * row_bytes_, unwritten),
        found_(static_cast<int64_t>(this->keys.size())) {
    warprank::hash_table::find(table, {on_device_.data(), on_device_.size()}, rows_.data(), row_bytes_, found_.data(),
                               stream);
  }

  /// Waits, and gives each key's row or nothing; fails where a row without a key was written.
  std::vector<std::optional<Row>> rows() const {
    const std::vector<uint8_t> found = found_.read();
    const std::vector<unsigned char> all = rows_.read();
    std::vector<std::optional<Row>> result;
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto begin = all.begin() + static_cast<int64_t>(i) * row_bytes_;
      Row row(begin, begin + row_bytes_);
      if (found[i] == 0) {
        EXPECT_EQ(row, Row(row.size(), unwritten)) << "written, but not found";
      }
      result.push_back(found[i] == 0 ? std::nullopt : std::optional<Row>(std::move(row)));
    }
    return result;
  }

  const std::vector<int64_t> keys;

 private:
  static constexpr unsigned char unwritten = 0x5a;
  int64_t row_bytes_;
  DeviceArray<int64_t> on_device_;
  DeviceArray<unsigned char> rows_;
  DeviceArray<uint8_t> found_;
};

/// An update in flight.
class Update {
 public:
  /// Gives the keys rows of this version, or erases them when there is none.
  template <class Protocol = warprank::detail::UpdateProtocol>
  static std::unique_ptr<Update> launch(const HashTableView& table, std::vector<int64_t> keys,
                                        std::optional<uint64_t> version, const Epoch& epoch, Stream stream,
                                        Protocol = {}) {
    std::unique_ptr<Update> update(new Update(table, std::move(keys), version));
    const Keys batch{update->on_device_.data(), update->on_device_.size()};
    Status* statuses = update->statuses_on_device_.data();
    if (version) {
      const auto rows = warprank::detail::rows_for(table, update->rows_.data(), table.row_bytes, batch.capacity);
      warprank::detail::launch_insert_or_assign<Protocol>(table, batch, rows, epoch, statuses, stream);
    } else {
      warprank::detail::launch_erase<Protocol>(table, batch, epoch, statuses, stream);
    }
    copy(update->statuses.data(), statuses, batch.capacity, stream);
    return update;
  }

  const std::vector<int64_t> keys;
  const std::optional<uint64_t> version;
  std::vector<Status> statuses;  ///< once the stream has come so far

 private:
  Update(const HashTableView& table, std::vector<int64_t> keys, std::optional<uint64_t> version)
      : keys(std::move(keys)),
        version(version),
        statuses(this->keys.size()),
        on_device_(this->keys),
        rows_(rows_of(this->keys, version.value_or(0), table.row_bytes)),
        statuses_on_device_(on_device_.size()) {}

  DeviceArray<int64_t> on_device_;
  DeviceArray<unsigned char> rows_;
  DeviceArray<Status> statuses_on_device_;
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
  int64_t capacity() const {
    return static_cast<int64_t>(view_.num_buckets()) * warprank::hash_table::header_positions;
  }

  std::vector<Status> insert(const std::vector<int64_t>& keys, uint64_t version) { return change(keys, version); }
  std::vector<Status> erase(const std::vector<int64_t>& keys) { return change(keys, std::nullopt); }
  std::vector<std::optional<Row>> find(const std::vector<int64_t>& keys) { return LookUp(view_, keys, readers).rows(); }

  /// Waits until all that was retired may be used again.
  void pass_grace() {
    for (int step = 0; step < 3; ++step) {
      synchronize();
      epochs.poll();
    }
  }

 private:
  std::vector<Status> change(const std::vector<int64_t>& keys, std::optional<uint64_t> version) {
    const auto update = Update::launch(view_, keys, version, epochs.begin(), updates);
    epochs.end(updates);
    synchronize();
    return update->statuses;
  }

  HashTableView view_;
  DeviceArray<unsigned char> buckets_;
  DeviceArray<uint64_t> size_;

 public:
  Stream readers, updates;
  Epochs epochs;
};

}  // namespace hash_table_testing
