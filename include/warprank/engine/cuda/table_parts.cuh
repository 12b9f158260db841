// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a table on a GPU consists of, and where its parts lie.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/text.hpp"
#include "warprank/device/find_device.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/device/sharded_memory.hpp"
#include "warprank/engine/cuda/rows_before_store.cuh"
#include "warprank/engine/cuda/table_cache.cuh"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/placed_table.hpp"
#include "warprank/engine/row_source.hpp"
#include "warprank/engine/table_source.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/ops/scaled_rows.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// A table, as look-ups take it.
struct CudaTable {
  PlacedTable placed;                   ///< but for where
  TableView view;                       ///< of rows that are in `hashed` all but the rows
  std::optional<HashTableView> hashed;  ///< has the rows of a hashed table, or some of those of a table in a store
  device::DeviceMemory memory;
  device::MappedMemory on_host;                   ///< of rows that are not on the device, or not all of them
  device::ShardedMemory sharded;                  ///< of rows that are on several
  std::unique_ptr<TableCache> cache;              ///< null where it has none
  std::unique_ptr<RowsBeforeStore> before_store;  ///< of a table in a store: those of `hashed`
  std::unique_ptr<RowTier> tier;                  ///< what fetches them

  /// Whether ids are keys of any value, not numbers of rows.
  bool is_hashed() const { return placed.info.hashed; }
  /// Where several devices have tables: whether they read the same rows.
  bool is_shared() const { return on_host.data() != nullptr || sharded.data() != nullptr; }
  /// In words; `on_device` of its bytes there.
  std::string where(int64_t on_device) const {
    const std::string bytes = warprank::detail::bytes_text(on_device);
    if (sharded.data() != nullptr) return "device memory of several, here " + bytes;
    if (on_host.data() == nullptr) return "device memory, " + bytes;
    const std::string most = "; on the device those that are asked for most, " + bytes;
    const std::string host_bytes = warprank::detail::bytes_text(on_host.bytes());
    if (tier) return "a store; in pinned memory of the host those that are asked for, " + host_bytes + most;
    return "pinned memory of the host, " + host_bytes + (cache ? most : "");
  }
};

/// How a table keeps its rows: bytes of one, scale and offset of I8 the last of them, and of a direct table bytes from
/// one to the next. A direct table with a cache keeps them as a hash table does: a look-up reads either.
struct KeptRows {
  explicit KeptRows(const TableSource& source)
      : bytes(hash_table::row_bytes(source.type, source.info.dim)), stride(bytes) {
    if (source.info.hashed) return;
    if (source.placement.where == Placement::cached) {
      stride = cache_shape(source.type, source.info.dim).row_stride;
    } else if (source.type == DType::i8) {
      bytes = stride = scaled_row_bytes(source.info.dim);
    }
  }
  int64_t bytes, stride;
};
/// Of a direct table.
inline int64_t kept_bytes(const TableSource& source) { return source.rows->shape[0] * KeptRows(source).stride; }

/// Of a table in a store.
inline StoredRowsLayout stored_rows_layout(const TableSource& source) {
  return {{source.type, source.info.dim}, source.info.rows, source.in_store->memory_bytes()};
}
/// The cache of a table that has one.
inline CacheLayout cache_layout(const TableSource& source) {
  const int64_t most_keys = source.rows != nullptr ? source.rows->shape[0]
                            : source.in_store      ? stored_rows_layout(source).num_places()
                                                   : source.image_bytes() / (KeptRows(source).bytes + 8);
  return {source.type, source.info.dim, most_keys, source.placement.device_bytes, source.in_store != nullptr};
}

/// The devices that have tables, in the order in which they have stripes of sharded ones.
struct TableDevices {
  TableDevices(int device_index, const LoadOptions& options)
      : index(device_index), all(options.devices.empty() ? std::vector<int>{device_index} : options.devices) {
    if (!has(index))
      throw invalid_argument("LoadOptions::devices", "device " + std::to_string(index) + ", the tables', among them",
                             text());
  }

  int index;  ///< of which a store is
  std::vector<int> all;
  bool can_shard = false;  ///< and has to

  /// Throws cuda_error for one that cannot be used.
  void find_out(const std::vector<TableSource>& sources) {
    for (const int device : all) device::require_usable(device);
    can_shard = std::any_of(sources.begin(), sources.end(),
                            [](const TableSource& table) { return table.placement.where == Placement::sharded; }) &&
                device::can_shard(all);
  }
  bool has(int device) const { return std::count(all.begin(), all.end(), device) != 0; }
  int64_t place() const { return std::find(all.begin(), all.end(), index) - all.begin(); }
  std::string text() const {
    std::string numbers;
    for (const int device : all) numbers += (numbers.empty() ? "" : ", ") + std::to_string(device);
    return numbers;
  }
};

/// What the parts of a table take, in bytes, and where its default row and its cache lie in device memory; -1: it has
/// none. Rows are at the beginning of what they lie in.
struct TableParts {
  TableParts(const TableSource& source, const TableDevices& devices) {
    const int64_t rows = padded(source.in_store          ? stored_rows_layout(source).bytes
                                : source.rows == nullptr ? source.image_bytes()
                                                         : kept_bytes(source));
    const Placement where = source.placement.where;
    if (where == Placement::sharded && devices.can_shard) {
      sharded_bytes = rows;
      share_bytes = device::stripes_of(rows, devices.all).bytes_on(devices.place());
    } else {
      (where == Placement::device ? device_bytes : host_bytes) = rows;
    }
    if (source.default_row != nullptr) default_row_at = add(source.default_row->bytes);
    if (source.placement.where == Placement::cached) cache_at = add(cache_layout(source).bytes);
  }

  int64_t default_row_at = -1, cache_at = -1;
  int64_t device_bytes = 0, host_bytes = 0, sharded_bytes = 0;
  int64_t share_bytes = 0;  ///< of sharded_bytes, on the device

  void add_to(MemoryReport& report, const std::string& name) const {
    report.emplace_back("table " + name, device_bytes + share_bytes);
    if (host_bytes > 0) report.emplace_back("pinned table " + name, host_bytes);
  }

 private:
  int64_t add(int64_t bytes) {
    const int64_t begin = device_bytes;
    device_bytes += padded(bytes);
    return begin;
  }
  static int64_t padded(int64_t bytes) {
    constexpr int64_t alignment = 256;
    return (bytes + alignment - 1) / alignment * alignment;
  }
};

}}}  // namespace warprank::v0::cuda_backend
