// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host engine's tables: rows copied into huge pages, those of hashed tables beside their keys.

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/core/shape.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/hash_table/build.hpp"
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
  HostTableStore(const Plan& plan, const Weights& weights, const HashTableFiles& images) {
    Problems problems;
    std::set<std::string> used;
    for (const TableInfo& info : plan.source().tables) {
      const auto image = images.find(info.name);
      if (info.hashed && image != images.end()) {
        used.insert(info.name + ".hash_table");
        load_image(info, *image->second, weights, used, problems);
      } else {
        load(info, weights, used, problems);
      }
    }
    for (const std::string& name : weights.names())
      if (used.count(name) == 0)
        problems.add("tables: tensor '" + name + "'", "a tensor that a table of the model reads",
                     "one that none reads");
    for (const auto& [name, file] : images)
      if (used.count(name + ".hash_table") == 0)
        problems.add(file->path(), "the image of a hashed table of the model", "table '" + name + "'");
    problems.throw_if_any();
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
  /// Finds a tensor and notes that it was used; reports it when it is missing though needed, or not as expected.
  static const TensorView* find(const Weights& weights, const std::string& name, bool needed,
                                const std::string& expected, std::set<std::string>& used, Problems& problems) {
    used.insert(name);
    const TensorView* tensor = weights.find(name);
    if (tensor == nullptr && needed) problems.add("tables: tensor '" + name + "'", expected, "none");
    return tensor;
  }

  static bool expect(bool good, const std::string& name, const std::string& expected, const TensorView& tensor,
                     Problems& problems) {
    if (!good)
      problems.add("tables: tensor '" + name + "'", expected,
                   std::string(tensor.type_name) + " " + to_string(tensor.shape));
    return good;
  }

  template <class Value>
  static Buffer<Value> copy(const TensorView& tensor) {
    Buffer<Value> buffer(tensor.bytes / static_cast<int64_t>(sizeof(Value)));
    if (tensor.bytes > 0) std::memcpy(buffer.data(), tensor.data, static_cast<size_t>(tensor.bytes));
    return buffer;
  }

  static void load_floats(const std::string& name, bool needed, int64_t size, const Weights& weights,
                          Buffer<float>& into, std::set<std::string>& used, Problems& problems) {
    const std::string text = "F32 [" + std::to_string(size) + "]";
    const TensorView* tensor = find(weights, name, needed, text, used, problems);
    if (tensor != nullptr &&
        expect(tensor->dtype == DType::f32 && tensor->shape == Shape{size}, name, text, *tensor, problems))
      into = copy<float>(*tensor);
  }

  /// Adds what `body` throws, with the table's name before it; says whether it threw nothing.
  template <class Body>
  static bool collect(const TableInfo& info, Problems& problems, Body&& body) {
    try {
      body();
      return true;
    } catch (const invalid_argument& error) {
      for (const Problem& problem : error.problems())
        problems.add("table '" + info.name + "': " + problem.what, problem.expected, problem.got);
      return false;
    }
  }

  void load_image(const TableInfo& info, const HashTableFile& file, const Weights& weights, std::set<std::string>& used,
                  Problems& problems) {
    const HashTableHeader& header = file.header();
    const auto expected = [&](const char* what, int64_t wanted, uint64_t got) {
      if (static_cast<uint64_t>(wanted) != got)
        problems.add("table '" + info.name + "': " + file.path() + ": " + what, std::to_string(wanted),
                     std::to_string(got));
      return static_cast<uint64_t>(wanted) == got;
    };
    if (!expected("dim", info.dim, header.dim)) return;
    if (info.rows > 0 && !expected("rows", info.rows, header.size)) return;
    HostTable table;
    load_floats(info.name + ".default", false, info.dim, weights, table.default_row, used, problems);
    if (collect(info, problems, [&] { table.hashed = file.read(); })) add_hashed(info, std::move(table));
  }

  void load(const TableInfo& info, const Weights& weights, std::set<std::string>& used, Problems& problems) {
    const std::string rows_name = info.hashed ? info.name + ".rows" : info.name;
    const std::string rows_text = info.rows > 0 ? std::to_string(info.rows) : "any";
    const std::string expected = "F32, F16, BF16 or I8 [" + rows_text + ", " + std::to_string(info.dim) + "]";
    const TensorView* rows = find(weights, rows_name, true, expected, used, problems);
    if (rows == nullptr) return;
    const bool rows_fit = rows->dtype && *rows->dtype != DType::i64 && rows->shape.size() == 2 &&
                          rows->shape[1] == info.dim && (info.rows == 0 || rows->shape[0] == info.rows);
    if (!expect(rows_fit, rows_name, expected, *rows, problems)) return;
    const int64_t num_rows = rows->shape[0];

    HostTable table;
    if (*rows->dtype == DType::i8) {
      load_floats(info.name + ".scale", true, num_rows, weights, table.scale, used, problems);
      load_floats(info.name + ".offset", true, num_rows, weights, table.offset, used, problems);
    }
    load_floats(info.name + ".default", false, info.dim, weights, table.default_row, used, problems);
    if (info.hashed) {
      const std::string keys_name = info.name + ".keys", keys_text = "I64 [" + std::to_string(num_rows) + "]";
      const TensorView* keys = find(weights, keys_name, true, keys_text, used, problems);
      const bool keys_fit = keys != nullptr && expect(keys->dtype == DType::i64 && keys->shape == Shape{num_rows},
                                                      keys_name, keys_text, *keys, problems);
      if (!keys_fit || table.scale.size() != table.offset.size()) return;
      const HashTableChunk all{num_rows, keys->data, rows->data, table.scale.data(), table.offset.data()};
      const auto build = [&] { table.hashed = build_hash_table({*rows->dtype, info.dim}, all); };
      if (collect(info, problems, build)) add_hashed(info, std::move(table));
      return;
    }
    table.rows = copy<unsigned char>(*rows);
    table.view = {*rows->dtype,
                  table.rows.data(),
                  num_rows,
                  info.dim,
                  info.dim * size_of(*rows->dtype),
                  table.scale.data(),
                  table.offset.data(),
                  table.default_row.data()};
    tables_.emplace(info.name, std::move(table));
  }

  void add_hashed(const TableInfo& info, HostTable table) {
    table.scale = Buffer<float>();
    table.offset = Buffer<float>();
    table.view.type = table.hashed->view().type;
    table.view.dim = info.dim;
    table.view.default_row = table.default_row.data();
    tables_.emplace(info.name, std::move(table));
  }

  std::map<std::string, HostTable> tables_;
};

}  // namespace warprank::host_backend
