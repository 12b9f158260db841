// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A GPU's tables: rows as the files have them, hashed tables as their images.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/view.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/engine/cuda/memory_needs.cuh"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/table_source.hpp"
#include "warprank/hash_table/image.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank::cuda_backend {

/// A table in device memory, as look-ups take it.
struct CudaTable {
  TableView view;                       ///< of a hashed table type, dim and default_row
  std::optional<HashTableView> hashed;  ///< has the rows
  device::DeviceMemory memory;

  bool is_hashed() const { return hashed.has_value(); }
};

/// Where the parts of a table lie in its memory, in bytes; -1: it has none.
struct TableParts {
  static constexpr int64_t alignment = 256;

  explicit TableParts(const TableSource& source) {
    rows_at = source.rows == nullptr ? add(source.image().size()) : add(source.rows->bytes);
    if (source.scale != nullptr) scale_at = add(source.scale->bytes);
    if (source.offset != nullptr) offset_at = add(source.offset->bytes);
    if (source.default_row != nullptr) default_row_at = add(source.default_row->bytes);
  }

  int64_t rows_at = -1, scale_at = -1, offset_at = -1, default_row_at = -1;
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
  CudaTableStore(const Plan& plan, const Weights& weights, const HashTableFiles& images, int device_index) {
    std::vector<TableSource> sources = find_tables(plan, weights, images, Images::map);
    const device::DeviceGuard current(device_index);
    check_memory(sources, device_index);
    const device::OwnedStream stream;
    for (TableSource& source : sources) {
      load(source, stream.get());
      source.hashed.reset();  // frees what was built
    }
  }

  /// Null for a table that was not loaded.
  const CudaTable* find(const std::string& name) const {
    const auto it = tables_.find(name);
    return it == tables_.end() ? nullptr : &it->second;
  }

  MemoryReport memory() const override {
    MemoryReport report;
    for (const auto& [name, table] : tables_) report.emplace_back("table " + name, table.memory.bytes());
    return report;
  }

 private:
  static void check_memory(const std::vector<TableSource>& sources, int device_index) {
    MemoryNeeds needs;
    for (const TableSource& source : sources) needs.add(source.info.name, TableParts(source).bytes);
    needs.check("tables", device_index);
  }

  /// In pieces, so that copies of whoever is serving get in between.
  static void copy(unsigned char* to, const void* from, int64_t bytes, device::Stream stream) {
    constexpr int64_t piece = int64_t{4} << 20;
    for (int64_t at = 0; at < bytes; at += piece) {
      device::copy_to_device(to + at, static_cast<const unsigned char*>(from) + at, std::min(piece, bytes - at),
                             stream);
    }
  }

  void load(const TableSource& source, device::Stream stream) {
    const TableParts parts(source);
    CudaTable table;
    table.memory = device::DeviceMemory(parts.bytes, "table '" + source.info.name + "'");
    auto* const memory = static_cast<unsigned char*>(table.memory.data());
    const auto load_part = [&](const TensorView* tensor, int64_t at) -> unsigned char* {
      if (tensor == nullptr || tensor->bytes == 0) return nullptr;
      copy(memory + at, tensor->data, tensor->bytes, stream);
      return memory + at;
    };
    table.view.type = source.type;
    table.view.dim = source.info.dim;
    table.view.default_row = reinterpret_cast<const float*>(load_part(source.default_row, parts.default_row_at));
    if (source.rows == nullptr) {
      const Span<const unsigned char> image = source.image();
      HashTableHeader header;
      std::memcpy(&header, image.data(), sizeof header);
      copy(memory + parts.rows_at, image.data(), image.size(), stream);
      table.hashed = view_hash_table(header, memory + parts.rows_at);
    } else {
      table.view.rows = load_part(source.rows, parts.rows_at);
      table.view.num_rows = source.rows->shape[0];
      table.view.row_stride_bytes = table.view.row_bytes();
      table.view.scale = reinterpret_cast<const float*>(load_part(source.scale, parts.scale_at));
      table.view.offset = reinterpret_cast<const float*>(load_part(source.offset, parts.offset_at));
    }
    device::synchronize(stream);
    tables_.emplace(source.info.name, std::move(table));
  }

  std::map<std::string, CudaTable> tables_;
};

}  // namespace warprank::cuda_backend
