// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host engine's tables: rows copied into huge pages, those of hashed tables beside their keys.

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "warprank/core/buffer.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/table_source.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank::host_backend {

struct HostTable {
  TableView view;                   ///< of a hashed table all but the rows
  std::optional<HashTable> hashed;  ///< has the rows
  Buffer<unsigned char> rows;
  Buffer<float> scale, offset, default_row;

  bool is_hashed() const { return hashed.has_value(); }
  int64_t bytes() const {
    return (hashed ? hashed->bytes() : 0) + rows.bytes() + scale.bytes() + offset.bytes() + default_row.bytes();
  }
};

class HostTableStore : public TableStore {
 public:
  /// Throws as find_tables does.
  HostTableStore(const Plan& plan, const Weights& weights, const HashTableFiles& images) {
    for (TableSource& source : find_tables(plan, weights, images, Images::read)) add(std::move(source));
  }

  /// Null for a table that was not loaded.
  const HostTable* find(const std::string& name) const {
    const auto it = tables_.find(name);
    return it == tables_.end() ? nullptr : &it->second;
  }

  MemoryReport memory() const override {
    MemoryReport report;
    for (const auto& [name, table] : tables_) report.emplace_back("table " + name, table.bytes());
    return report;
  }

 private:
  /// No tensor is no value.
  template <class Value>
  static Buffer<Value> copy(const TensorView* tensor) {
    if (tensor == nullptr) return {};
    Buffer<Value> buffer(tensor->bytes / static_cast<int64_t>(sizeof(Value)));
    if (tensor->bytes > 0) std::memcpy(buffer.data(), tensor->data, static_cast<size_t>(tensor->bytes));
    return buffer;
  }

  void add(TableSource source) {
    HostTable& table = tables_[source.info.name];
    table.hashed = std::move(source.hashed);
    table.rows = copy<unsigned char>(source.rows);
    table.scale = copy<float>(source.scale);
    table.offset = copy<float>(source.offset);
    table.default_row = copy<float>(source.default_row);
    table.view.type = source.type;
    table.view.dim = source.info.dim;
    table.view.default_row = table.default_row.data();
    if (table.is_hashed()) return;
    table.view.rows = table.rows.data();
    table.view.num_rows = source.rows->shape[0];
    table.view.row_stride_bytes = table.view.row_bytes();
    table.view.scale = table.scale.data();
    table.view.offset = table.offset.data();
  }

  std::map<std::string, HostTable> tables_;
};

}  // namespace warprank::host_backend
