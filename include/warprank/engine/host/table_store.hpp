// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host engine's tables: rows copied into huge pages, keys indexed.

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/core/shape.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/ops/host/hash_index.hpp"
#include "warprank/ops/table_view.hpp"

namespace warprank::host_backend {

struct HostTable {
  TableView view;
  host_ops::HashIndex index;
  bool hashed = false;
  Buffer<unsigned char> rows;
  Buffer<float> scale, offset, default_row;
};

class HostTableStore : public TableStore {
 public:
  HostTableStore(const Plan& plan, const Weights& weights) {
    Problems problems;
    std::set<std::string> used;
    for (const TableInfo& info : plan.source().tables) load(info, weights, used, problems);
    for (const std::string& name : weights.names())
      if (used.count(name) == 0)
        problems.add("tables: tensor '" + name + "'", "a tensor that a table of the model reads",
                     "one that none reads");
    problems.throw_if_any();
  }

  /// Null for a table that was not loaded.
  const HostTable* find(const std::string& name) const {
    const auto it = tables_.find(name);
    return it == tables_.end() ? nullptr : &it->second;
  }

  MemoryReport memory() const override {
    MemoryReport report;
    for (const auto& [name, table] : tables_)
      report.emplace_back("table " + name, table.rows.bytes() + table.index.bytes() + table.scale.bytes() +
                                               table.offset.bytes() + table.default_row.bytes());
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
    table.hashed = info.hashed;
    if (info.hashed) {
      const std::string keys_name = info.name + ".keys", keys_text = "I64 [" + std::to_string(num_rows) + "]";
      const TensorView* keys = find(weights, keys_name, true, keys_text, used, problems);
      if (keys == nullptr ||
          !expect(keys->dtype == DType::i64 && keys->shape == Shape{num_rows}, keys_name, keys_text, *keys, problems))
        return;
      const Buffer<int64_t> copied = copy<int64_t>(*keys);
      try {
        table.index = host_ops::HashIndex::build({copied.data(), copied.size()});
      } catch (const invalid_argument& error) {
        for (const Problem& problem : error.problems())
          problems.add("table '" + info.name + "': " + problem.what, problem.expected, problem.got);
        return;
      }
    }
    const auto load_floats = [&](const char* suffix, bool needed, int64_t size, Buffer<float>& into) {
      const std::string name = info.name + suffix, text = "F32 [" + std::to_string(size) + "]";
      const TensorView* tensor = find(weights, name, needed, text, used, problems);
      if (tensor != nullptr &&
          expect(tensor->dtype == DType::f32 && tensor->shape == Shape{size}, name, text, *tensor, problems))
        into = copy<float>(*tensor);
    };
    if (*rows->dtype == DType::i8) {
      load_floats(".scale", true, num_rows, table.scale);
      load_floats(".offset", true, num_rows, table.offset);
    }
    load_floats(".default", false, info.dim, table.default_row);
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

  std::map<std::string, HostTable> tables_;
};

}  // namespace warprank::host_backend
