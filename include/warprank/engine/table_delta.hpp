// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Finds and checks the arguments of Tables::update. Every engine's store starts here.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/pace.hpp"
#include "warprank/core/shape.hpp"
#include "warprank/engine/finite_rows.hpp"
#include "warprank/engine/table_options.hpp"
#include "warprank/hash_table/update.hpp"
#include "warprank/ops/table_view.hpp"
#include "warprank/weights/weights.hpp"

namespace warprank { inline namespace v0 {

/// A key, and the number of its new row among the given rows; -1 if the key shall be erased.
struct RowChange {
  int64_t key;
  int64_t row;
};

/// The changes of one table. It does not own the tensors, which may be at any address.
struct TableDelta {
  std::string table;
  const TensorView *rows = nullptr, *scale = nullptr, *offset = nullptr;  ///< null where there are none
  std::vector<RowChange> erased, written;                                 ///< in the order of keys, each once

  /// Copies a given row in the form of tables, `kept_bytes` long: scale and offset of I8 are at the end.
  void copy_row(int64_t row, unsigned char* to, int64_t kept_bytes) const {
    const int64_t bytes = rows->shape[1] * size_of(*rows->dtype);
    std::memcpy(to, rows->data + row * bytes, static_cast<size_t>(bytes));
    if (scale == nullptr) return;
    const int64_t numbers_at = kept_bytes - 8;
    std::memset(to + bytes, 0, static_cast<size_t>(numbers_at - bytes));
    std::memcpy(to + numbers_at, scale->data + row * 4, 4);
    std::memcpy(to + numbers_at + 4, offset->data + row * 4, 4);
  }
};

inline void count(TableChanges& changes, hash_table::Status status) {
  using hash_table::Status;
  changes.updated += status == Status::updated;
  changes.inserted += status == Status::inserted;
  changes.erased += status == Status::erased;
  changes.absent += status == Status::absent;
  changes.full += status == Status::full;
}

namespace detail {

class DeltaFinder {
 public:
  explicit DeltaFinder(const Weights& tensors) : tensors_(tensors) {}

  /// Looks for the tensors of a table.
  void find(const std::string& name, const TableView& table, bool is_hashed) {
    TableDelta delta;
    delta.table = name;
    const TensorView* keys = find(name + ".keys");
    delta.rows = find(name + ".rows");
    const TensorView* erased = is_hashed ? find(name + ".erase") : nullptr;
    const bool is_scaled = table.type == DType::i8;
    if (is_scaled) {
      delta.scale = find(name + ".scale");
      delta.offset = find(name + ".offset");
    }
    if (keys == nullptr && delta.rows == nullptr && delta.scale == nullptr && delta.offset == nullptr &&
        erased == nullptr)
      return;
    const size_t before = problems_.list().size();
    const bool writes = keys != nullptr || delta.rows != nullptr || delta.scale != nullptr || delta.offset != nullptr;
    if (writes) {
      const int64_t count = keys != nullptr && keys->shape.size() == 1 ? keys->shape[0] : 0;
      expect(keys, name + ".keys", DType::i64, {count}, "I64 [n]");
      expect(delta.rows, name + ".rows", table.type, {count, table.dim});
      if (is_scaled) {
        expect(delta.scale, name + ".scale", DType::f32, {count});
        expect(delta.offset, name + ".offset", DType::f32, {count});
      }
    }
    if (erased != nullptr)
      expect(erased, name + ".erase", DType::i64, {erased->shape.empty() ? 0 : erased->shape[0]}, "I64 [n]");
    if (problems_.list().size() != before) return;
    if (writes) unusable_rows(*delta.rows, delta.scale, delta.offset, Pace()).report(name, "row", problems_);
    if (problems_.list().size() != before) return;
    if (writes) delta.written = changes_of(*keys, false);
    if (erased != nullptr) delta.erased = changes_of(*erased, true);
    if (is_hashed) {
      refuse_both(delta);
    } else {
      check_range(delta, table.num_rows);
    }
    found_.push_back(std::move(delta));
  }

  /// Throws invalid_argument with all errors, including tensors that no table reads.
  std::vector<TableDelta> end() {
    for (const std::string& name : tensors_.names())
      if (used_.count(name) == 0)
        problems_.add("table update: tensor '" + name + "'",
                      "<table>.keys, .rows or, of a hashed table, .erase, of an I8 table .scale and .offset",
                      "a tensor that no table reads");
    problems_.throw_if_any();
    return std::move(found_);
  }

 private:
  const TensorView* find(const std::string& name) {
    const TensorView* tensor = tensors_.find(name);
    if (tensor != nullptr) used_.insert(tensors_.stored_name(name));
    return tensor;
  }

  void expect(const TensorView* tensor, const std::string& name, DType type, const Shape& shape,
              std::string expected = "") {
    if (tensor != nullptr && tensor->dtype == type && tensor->shape == shape) return;
    if (expected.empty()) expected = std::string(name_of(type)) + " " + to_string(shape);
    problems_.add("table update: tensor '" + name + "'", expected,
                  tensor == nullptr ? "none" : std::string(tensor->type_name) + " " + to_string(tensor->shape));
  }

  /// Sorted by key; of equal keys the last.
  static std::vector<RowChange> changes_of(const TensorView& keys, bool erases) {
    std::vector<RowChange> all(static_cast<size_t>(keys.shape[0]));
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = {warprank::load_element<int64_t>(keys.data, static_cast<int64_t>(i)), static_cast<int64_t>(i)};
    std::sort(all.begin(), all.end(),
              [](const RowChange& a, const RowChange& b) { return a.key != b.key ? a.key < b.key : a.row > b.row; });
    const auto same_key = [](const RowChange& a, const RowChange& b) { return a.key == b.key; };
    all.erase(std::unique(all.begin(), all.end(), same_key), all.end());
    if (erases)
      for (RowChange& change : all) change.row = -1;
    return all;
  }

  void refuse_both(const TableDelta& delta) {
    std::vector<RowChange> both;
    std::set_intersection(delta.written.begin(), delta.written.end(), delta.erased.begin(), delta.erased.end(),
                          std::back_inserter(both),
                          [](const RowChange& a, const RowChange& b) { return a.key < b.key; });
    if (!both.empty())
      problems_.add("table update: '" + delta.table + "', key " + std::to_string(both[0].key), "a row, or to be erased",
                    "both, as for " + std::to_string(both.size()) + " keys");
  }

  void check_range(const TableDelta& delta, int64_t num_rows) {
    int64_t wrong = 0, first = 0;
    for (const RowChange& change : delta.written)
      if ((change.key < 0 || change.key >= num_rows) && wrong++ == 0) first = change.key;
    if (wrong > 0)
      problems_.add("table update: '" + delta.table + "', key",
                    "a row of the table, 0 to " + std::to_string(num_rows - 1),
                    std::to_string(first) + ", and " + std::to_string(wrong - 1) + " more that are none");
  }

  const Weights& tensors_;
  std::set<std::string> used_;  ///< by the names that they are stored under
  Problems problems_;
  std::vector<TableDelta> found_;
};

}  // namespace detail

/// The changes of Tables::update, checked against the tables. These are a map from names to objects with is_hashed()
/// and `view`, which has the row type, dim and, for direct tables, num_rows. Tensors must outlive the result. Throws
/// invalid_argument with all errors.
template <class Tables>
std::vector<TableDelta> find_deltas(const Weights& tensors, const Tables& tables) {
  detail::DeltaFinder finder(tensors);
  for (const auto& [name, table] : tables) finder.find(name, table.view, table.is_hashed());
  return finder.end();
}

/// For stores whose tables were loaded without LoadOptions::updatable.
inline invalid_argument not_updatable() {
  return {"table update", "tables that were loaded with LoadOptions::updatable", "tables that were loaded without"};
}

}}  // namespace warprank::v0
