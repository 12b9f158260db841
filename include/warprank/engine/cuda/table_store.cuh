// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A GPU's tables: rows as the files have them, but those of I8 with their scales and offsets behind them, and hashed
/// tables as their images.
///
/// Tables that are not updatable are only read. For the others table_updates.cuh tells how batches and updates go side
/// by side.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/find_device.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/engine/cuda/memory_needs.cuh"
#include "warprank/engine/cuda/table_updates.cuh"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/table_source.hpp"
#include "warprank/hash_table/image.hpp"
#include "warprank/hash_table/layout.hpp"
#include "warprank/ops/scaled_rows.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank::cuda_backend {

/// A table in device memory, as look-ups take it.
struct CudaTable {
  TableView view;                       ///< of a hashed table type, dim and default_row
  std::optional<HashTableView> hashed;  ///< has the rows
  device::DeviceMemory memory;

  bool is_hashed() const { return hashed.has_value(); }
};

/// Bytes of a row in the memory of a table.
constexpr int64_t kept_row_bytes(DType type, int64_t dim, bool is_hashed) {
  return is_hashed || type != DType::i8 ? hash_table::row_bytes(type, dim) : scaled_row_bytes(dim);
}
/// Of a direct table.
inline int64_t kept_bytes(const TableSource& source) {
  return source.rows->shape[0] * kept_row_bytes(source.type, source.info.dim, false);
}

/// Where the parts of a table lie in its memory, in bytes; -1: it has none.
struct TableParts {
  static constexpr int64_t alignment = 256;

  explicit TableParts(const TableSource& source) {
    rows_at = add(source.rows == nullptr ? source.image_bytes() : kept_bytes(source));
    if (source.default_row != nullptr) default_row_at = add(source.default_row->bytes);
  }

  int64_t rows_at = -1, default_row_at = -1;
  int64_t bytes = 0;

 private:
  int64_t add(int64_t part_bytes) {
    const int64_t begin = bytes;
    bytes += (part_bytes + alignment - 1) / alignment * alignment;
    return begin;
  }
};

class CudaTableStore : public TableStore {
 public:
  /// Loads the tables of a plan to a device; returns when they are there. The host has no copy of tensors and images in
  /// files meanwhile; tables of keys and rows are built in its memory. Throws as find_tables does, and
  /// out_of_device_memory, with what each table needs, before anything is allocated.
  CudaTableStore(const Plan& plan, const Weights& weights, const HashTableFiles& images, int device_index,
                 const LoadOptions& options = {})
      : device_index_(device_index) {
    Pace pace(options.most_bytes_per_second);
    std::vector<TableSource> sources = find_tables(plan, weights, images, Images::map, options, pace);
    if (options.updatable) check_rows(sources);
    device::require_usable(device_index);  // once for all models: they have tables, if none of their own
    const device::DeviceGuard current(device_index);
    check_memory(sources, options);
    if (options.updatable) updates_ = std::make_unique<TableUpdates>(chunk_bytes(sources));
    const device::OwnedStream stream;
    for (TableSource& source : sources) {
      load(source, pace, stream.get());
      source.hashed.reset();  // frees what was built
    }
  }

  /// What loading them would take; nothing is built or allocated. Throws as find_tables does.
  static MemoryReport needs(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                            const LoadOptions& options) {
    Pace pace(options.most_bytes_per_second);
    const std::vector<TableSource> sources = find_tables(plan, weights, images, Images::check, options, pace);
    if (options.updatable) check_rows(sources);
    MemoryReport report;
    for (const TableSource& source : sources)
      report.emplace_back("table " + source.info.name, TableParts(source).bytes);
    if (options.updatable) report.emplace_back("updates of tables", chunk_bytes(sources));
    return report;
  }

  /// Null for a table that was not loaded.
  const CudaTable* find(const std::string& name) const {
    const auto it = tables_.find(name);
    return it == tables_.end() ? nullptr : &it->second;
  }

  /// Held from before a batch's first launch in `stream` until the event of its CudaTableReader is recorded.
  std::shared_lock<PhaseFairMutex> read(device::Stream stream) const {
    return updates_ == nullptr ? std::shared_lock<PhaseFairMutex>() : updates_->read(stream);
  }
  /// Null unless the tables are updatable.
  TableUpdates* updates() const { return updates_.get(); }

  UpdateReport update(const Weights& delta) override {
    if (updates_ == nullptr) throw not_updatable();
    const std::lock_guard<std::mutex> alone(updating_);
    const device::DeviceGuard current(device_index_);
    UpdateReport report;
    for (TableDelta& changed : find_deltas(delta, tables_)) {
      const CudaTable& table = tables_.at(changed.table);
      TableChanges& changes = report[changed.table];
      if (table.is_hashed()) {
        updates_->change(*table.hashed, changed, std::move(changed.erased), changes);  // first: it makes room
        updates_->change(*table.hashed, changed, std::move(changed.written), changes);
      } else {
        updates_->write(table.view, changed);
        changes.updated += static_cast<int64_t>(changed.written.size());
      }
    }
    return report;
  }

  MemoryReport memory() const override {
    MemoryReport report;
    for (const auto& [name, table] : tables_) report.emplace_back("table " + name, table.memory.bytes());
    if (updates_ != nullptr) report.emplace_back("updates of tables", updates_->device_bytes());
    return report;
  }

 private:
  /// A look-up goes over longer rows several times and finds them anew each time, so it could see two versions.
  static void check_rows(const std::vector<TableSource>& sources) {
    Problems problems;
    for (const TableSource& source : sources) {
      const int64_t most = source.type == DType::f32 ? 128 : 256;
      if (source.info.hashed && source.info.dim > most)
        problems.add("table '" + source.info.name + "'",
                     "at most " + std::to_string(most) + " columns of " + name_of(source.type) +
                         ", as it is hashed and updatable on a GPU",
                     std::to_string(source.info.dim));
    }
    problems.throw_if_any();
  }
  void check_memory(const std::vector<TableSource>& sources, const LoadOptions& options) const {
    MemoryNeeds needs;
    for (const TableSource& source : sources) needs.add(source.info.name, TableParts(source).bytes);
    if (options.updatable) needs.add("updates", chunk_bytes(sources));
    needs.check("tables", device_index_);
  }
  static int64_t chunk_bytes(const std::vector<TableSource>& sources) {
    int64_t bytes = 0;
    for (const TableSource& source : sources) {
      const ChunkLayout layout(kept_row_bytes(source.type, source.info.dim, source.info.hashed));
      bytes = std::max(bytes, layout.bytes);
    }
    return bytes;
  }

  static constexpr int64_t piece = int64_t{4} << 20;  // so that copies of whoever is serving get in between

  static void copy(unsigned char* to, const void* from, int64_t bytes, Pace& pace, device::Stream stream) {
    for (int64_t at = 0; at < bytes; at += piece) {
      const int64_t size = std::min(piece, bytes - at);
      device::copy_to_device(to + at, static_cast<const unsigned char*>(from) + at, size, stream);
      pause(size, pace, stream);
    }
  }
  /// Behind a piece; without a pace the next one is queued at once.
  static void pause(int64_t bytes, Pace& pace, device::Stream stream) {
    if (!pace.is_limited()) return;
    device::synchronize(stream);
    pace.moved(bytes);
  }

  /// Rows of I8, of which a piece is in the host's memory at a time.
  static void copy_scaled(unsigned char* to, const TableSource& source, Pace& pace, device::Stream stream) {
    const int64_t dim = source.info.dim;
    const TableView table{source.type,
                          source.rows->data,
                          source.rows->shape[0],
                          dim,
                          dim,
                          reinterpret_cast<const float*>(source.scale->data),
                          reinterpret_cast<const float*>(source.offset->data)};
    const int64_t row_bytes = scaled_row_bytes(dim), most = std::max<int64_t>(1, piece / row_bytes);
    Buffer<unsigned char> some(std::min(most, table.num_rows) * row_bytes);
    for (int64_t row = 0; row < table.num_rows; row += most) {
      const int64_t count = std::min(most, table.num_rows - row);
      to_scaled_rows(table, row, count, some.data());
      device::copy_to_device(to + row * row_bytes, some.data(), count * row_bytes, stream);
      device::synchronize(stream);
      pace.moved(count * row_bytes);
    }
  }

  void load(const TableSource& source, Pace& pace, device::Stream stream) {
    const TableParts parts(source);
    CudaTable table;
    table.memory = device::DeviceMemory(parts.bytes, "table '" + source.info.name + "'");
    auto* const memory = static_cast<unsigned char*>(table.memory.data());
    const auto load_part = [&](const TensorView* tensor, int64_t at) -> unsigned char* {
      if (tensor == nullptr || tensor->bytes == 0) return nullptr;
      copy(memory + at, tensor->data, tensor->bytes, pace, stream);
      return memory + at;
    };
    if (source.rows == nullptr) {
      table.view.type = source.type;
      table.view.dim = source.info.dim;
      const Span<const unsigned char> image = source.image();
      HashTableHeader header;
      std::memcpy(&header, image.data(), sizeof header);
      copy(memory + parts.rows_at, image.data(), image.size(), pace, stream);
      table.hashed = view_hash_table(header, memory + parts.rows_at);
    } else if (source.type == DType::i8) {
      unsigned char* const rows = kept_bytes(source) == 0 ? nullptr : memory + parts.rows_at;
      copy_scaled(rows, source, pace, stream);
      table.view = view_scaled_rows(rows, source.rows->shape[0], source.info.dim);
    } else {
      table.view = {source.type, load_part(source.rows, parts.rows_at), source.rows->shape[0], source.info.dim,
                    kept_row_bytes(source.type, source.info.dim, false)};
    }
    table.view.default_row = reinterpret_cast<const float*>(load_part(source.default_row, parts.default_row_at));
    device::synchronize(stream);
    tables_.emplace(source.info.name, std::move(table));
  }

  const int device_index_;
  std::map<std::string, CudaTable> tables_;
  std::unique_ptr<TableUpdates> updates_;
  std::mutex updating_;  // one update at a time
};

/// Somebody who looks rows up, and records `done` behind each batch. Copies are the same one; the last ends it.
class CudaTableReader {
 public:
  CudaTableReader(std::shared_ptr<const CudaTableStore> tables, const device::Event& done)
      : tables_(std::move(tables)) {
    if (TableUpdates* const updates = tables_->updates())
      registered_.reset(updates, [keep = tables_, reader = updates->add_reader(done)](TableUpdates* from) {
        from->remove_reader(reader);
      });
  }

  /// CudaTableStore::read.
  std::shared_lock<PhaseFairMutex> read(device::Stream stream) const { return tables_->read(stream); }

 private:
  std::shared_ptr<const CudaTableStore> tables_;
  std::shared_ptr<TableUpdates> registered_;  // null for tables that are not updatable
};

}  // namespace warprank::cuda_backend
