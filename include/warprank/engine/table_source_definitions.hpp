// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of engine/table_source.hpp.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "warprank/core/compiled.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/shape.hpp"
#include "warprank/engine/finite_rows.hpp"
#include "warprank/engine/row_source.hpp"
#include "warprank/engine/table_source.hpp"
#include "warprank/hash_table/build.hpp"
#include "warprank/hash_table/image.hpp"
#include "warprank/hash_table/row_cache.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

class TableFinder {
 public:
  TableFinder(const Weights& weights, Images images, const LoadOptions& options, Pace& pace)
      : weights_(weights), images_(images), options_(options), pace_(pace) {}

  /// Throws invalid_argument with everything that is missing, mis-shaped, damaged or not asked for.
  std::vector<TableSource> find(const Plan& plan, const HashTableFiles& images) {
    check_options(plan, images);
    for (const TableInfo& info : plan.source().tables) {
      const auto image = images.find(info.name);
      if (const std::shared_ptr<const RowSource>* in_store = store_of(info.name)) {
        find_in_store(info, *in_store, image != images.end());
      } else if (info.hashed && image != images.end()) {
        find_image(info, image->second);
      } else {
        find_tensors(info);
      }
    }
    for (const std::string& name : weights_.names())
      if (used_.count(name) == 0)
        problems_.add("tables: tensor '" + name + "'", "a tensor that a table of the model reads",
                      "one that none reads");
    for (const auto& [name, file] : images)
      if (!has_hashed(plan, name))
        problems_.add(file->path(), "the image of a hashed table of the model", "table '" + name + "'");
    for (TableSource& table : found_) {
      table.placement = placement_of(options_.placement, table.info.name);
      check_cache(table);
    }
    problems_.throw_if_any();
    return std::move(found_);
  }

 private:
  static bool has_hashed(const Plan& plan, const std::string& name) {
    const std::vector<TableInfo>& tables = plan.source().tables;
    return std::any_of(tables.begin(), tables.end(),
                       [&](const TableInfo& info) { return info.hashed && info.name == name; });
  }

  void check_options(const Plan& plan, const HashTableFiles& images) {
    if (!(options_.spare >= 0 && options_.spare <= 1000))
      problems_.add("LoadOptions::spare", "0 to 1000", std::to_string(options_.spare));
    if (options_.most_bytes_per_second < 0)
      problems_.add("LoadOptions::most_bytes_per_second", "0 or more", std::to_string(options_.most_bytes_per_second));
    if (!(options_.cache_pass_seconds >= 0 && options_.cache_pass_seconds <= 3600))
      problems_.add("LoadOptions::cache_pass_seconds", "0 to 3600", std::to_string(options_.cache_pass_seconds));
    for (const auto& [name, capacity] : options_.capacity) {
      const bool is_hashed = has_hashed(plan, name);
      if (!options_.updatable || !is_hashed)
        problems_.add("LoadOptions::capacity of '" + name + "'", "a hashed table that is updatable",
                      is_hashed ? "one that is not" : "none of that name");
      if (is_hashed && images.count(name) != 0)
        problems_.add("LoadOptions::capacity of '" + name + "'", "a table that is loaded as keys and rows",
                      "an image, which has the room that it was built with (HashTableOptions::capacity)");
    }
    check_placements(plan);
    check_devices();
    check_stores(plan);
  }

  /// Null where its rows are loaded.
  const std::shared_ptr<const RowSource>* store_of(const std::string& table) const {
    for (const auto& [pattern, in_store] : options_.stores)
      if (fits_pattern(pattern, table)) return &in_store;
    return nullptr;
  }

  void check_stores(const Plan& plan) {
    const std::vector<TableInfo>& tables = plan.source().tables;
    for (const auto& [pattern, in_store] : options_.stores) {
      const std::string what = "LoadOptions::stores of '" + pattern + "'";
      const bool fits =
          std::any_of(tables.begin(), tables.end(),
                      [p = std::string_view(pattern)](const TableInfo& table) { return fits_pattern(p, table.name); });
      if (!fits) problems_.add(what, "a table's name, or a pattern that fits one", "none of that name");
      if (in_store == nullptr)
        problems_.add(what, "a store", "none");
      else
        in_store->check(what, problems_);
    }
    for (const auto& [name, capacity] : options_.capacity)
      if (store_of(name) != nullptr)
        problems_.add("LoadOptions::capacity of '" + name + "'", "a table that is loaded", "one in a store");
    for (const TableInfo& table : tables)
      if (store_of(table.name) != nullptr) check_is_not_on_device(table);
  }

  /// Of a table in a store, whose rows are in front of it: in the host's memory, or in a cache. A placement that nobody
  /// has said is none.
  void check_is_not_on_device(const TableInfo& table) {
    const auto said = std::find_if(options_.placement.begin(), options_.placement.end(),
                                   [&](const auto& placement) { return fits_pattern(placement.first, table.name); });
    if (said == options_.placement.end()) return;
    const Placement where = said->second.where;
    if (where == Placement::device || where == Placement::sharded)
      problems_.add("LoadOptions::placement of '" + said->first + "'",
                    "host or cached, as table '" + table.name + "' is in a store (LoadOptions::stores)",
                    name_of_enum(where));
  }

  void find_in_store(const TableInfo& info, const std::shared_ptr<const RowSource>& in_store, bool has_image) {
    note(info.name + ".default");
    const std::string what = "table '" + info.name + "'";
    if (has_image) problems_.add(what, "no image, as its rows are in a store", "one");
    if (in_store == nullptr) return;
    const std::optional<StoredRows> rows = in_store->describe(info.name, problems_);
    if (!rows) return;
    if (rows->dim != info.dim)
      return problems_.add(what + " in its store: dim", std::to_string(info.dim), std::to_string(rows->dim));
    if (!collect(info, [&] { check_stored_table({info.name, *rows}); })) return;
    const int64_t least = RowCache::least_bytes(*rows);
    if (in_store->memory_bytes() < least)
      return problems_.add(what + ", memory_bytes", "at least " + std::to_string(least) + " for its rows",
                           std::to_string(in_store->memory_bytes()));
    TableSource table;
    table.info = info;
    table.type = rows->type;
    table.default_row = find_default_row(info);
    table.in_store = in_store;
    found_.push_back(std::move(table));
  }

  void check_placements(const Plan& plan) {
    const std::vector<TableInfo>& tables = plan.source().tables;
    for (const auto& [pattern, placement] : options_.placement) {
      const std::string what = "LoadOptions::placement of '" + pattern + "'";
      const bool fits =
          std::any_of(tables.begin(), tables.end(),
                      [p = std::string_view(pattern)](const TableInfo& table) { return fits_pattern(p, table.name); });
      if (!fits) problems_.add(what, "a table's name, or a pattern that fits one", "none of that name");
      if (placement.where != Placement::cached && placement.device_bytes != 0)
        problems_.add(what + ", device_bytes",
                      std::string("0, as the tables are of placement ") + name_of_enum(placement.where),
                      std::to_string(placement.device_bytes));
      if (placement.where == Placement::sharded && options_.devices.empty())
        problems_.add(what, "LoadOptions::devices, as the tables are of placement sharded", "none");
      if (placement.where == Placement::cached && options_.devices.size() > 1)
        problems_.add(what, "another placement than cached, as there are several LoadOptions::devices", "cached");
    }
  }
  void check_devices() {
    for (auto device = options_.devices.begin(); device != options_.devices.end(); ++device)
      if (*device < 0 || std::find(options_.devices.begin(), device, *device) != device)
        problems_.add("LoadOptions::devices", "each number once, from 0 on", std::to_string(*device));
  }

  /// A cache has whole buckets, for rows as hash tables have them.
  void check_cache(const TableSource& table) {
    if (table.placement.where != Placement::cached) return;
    const std::string what = "table '" + table.info.name + "'";
    const int64_t row_bytes = hash_table::row_bytes(table.type, table.info.dim);
    if (row_bytes > hash_table::max_row_bytes) {
      problems_.add(what, "rows of at most " + std::to_string(hash_table::max_row_bytes) + " bytes, as they are cached",
                    std::to_string(row_bytes));
      return;
    }
    const int64_t least = least_cache_bytes(table.type, table.info.dim);
    if (table.placement.device_bytes < least)
      problems_.add(
          what + ", device_bytes",
          "at least " + std::to_string(least) + ", " + std::to_string(hash_table::min_buckets) + " buckets of its rows",
          std::to_string(table.placement.device_bytes));
  }

  /// A tensor that belongs to a table, whether it is read or another one that is wrong comes before.
  void note(const std::string& name) { used_.insert(weights_.stored_name(name)); }

  /// Reports a tensor that is missing though needed. Null when there is none.
  const TensorView* find(const std::string& name, bool needed, const std::string& expected) {
    const TensorView* tensor = weights_.find(name);
    if (tensor == nullptr && needed) problems_.add("tables: tensor '" + name + "'", expected, "none");
    return tensor;
  }

  bool expect(bool good, const std::string& name, const std::string& expected, const TensorView& tensor) {
    if (!good)
      problems_.add("tables: tensor '" + name + "'", expected,
                    std::string(tensor.type_name) + " " + to_string(tensor.shape));
    return good;
  }

  /// Null when there is none, or not as expected.
  const TensorView* find_floats(const std::string& name, bool needed, int64_t size) {
    const std::string text = "F32 [" + std::to_string(size) + "]";
    const TensorView* tensor = find(name, needed, text);
    if (tensor == nullptr) return nullptr;
    return expect(tensor->dtype == DType::f32 && tensor->shape == Shape{size}, name, text, *tensor) ? tensor : nullptr;
  }
  /// The row of ids that a table does not have; null where there is none.
  const TensorView* find_default_row(const TableInfo& info) {
    const std::string name = info.name + ".default";
    const TensorView* row = find_floats(name, false, info.dim);
    if (row != nullptr && !are_finite(DType::f32, row->data, info.dim))
      problems_.add("tables: tensor '" + name + "'", "finite numbers", "NaN or infinity");
    return row;
  }

  /// Adds what `body` throws, with the table's name before it; says whether it threw nothing.
  template <class Body>
  bool collect(const TableInfo& info, Body&& body) {
    try {
      body();
      return true;
    } catch (const invalid_argument& error) {
      for (const Problem& problem : error.problems())
        problems_.add("table '" + info.name + "': " + problem.what, problem.expected, problem.got);
      return false;
    }
  }

  void find_image(const TableInfo& info, const std::shared_ptr<const HashTableFile>& file) {
    note(info.name + ".default");
    const HashTableHeader& header = file->header();
    const auto expected = [&](const char* what, int64_t wanted, uint64_t got) {
      if (static_cast<uint64_t>(wanted) != got)
        problems_.add("table '" + info.name + "': " + file->path() + ": " + what, std::to_string(wanted),
                      std::to_string(got));
      return static_cast<uint64_t>(wanted) == got;
    };
    if (!expected("dim", info.dim, header.dim)) return;
    if (info.rows > 0 && !expected("rows", info.rows, header.size)) return;
    if (options_.updatable && header.is_mutable == 0) {
      problems_.add("table '" + info.name + "': " + file->path(),
                    "an image that was built mutable, for LoadOptions::updatable", "one whose rows never change");
      return;
    }
    TableSource table;
    table.info = info;
    table.type = static_cast<DType>(header.type);
    table.default_row = find_default_row(info);
    const auto read = [&] {
      if (images_ == Images::read) {
        table.hashed = file->read(threads(), &pace_, options_.pages);
      } else {
        file->check(threads(), &pace_);
        table.mapped = file;
      }
      auto* const bytes = const_cast<unsigned char*>(file->image().data());  // only read
      const HashTableView mapped = view_hash_table(header, bytes);
      unusable_rows(table.hashed ? table.hashed->view() : mapped, pace_).report(info.name, "key", problems_);
    };
    if (collect(info, read)) found_.push_back(std::move(table));
  }

  void find_tensors(const TableInfo& info) {
    const std::string rows_name = info.hashed ? info.name + ".rows" : info.name;
    const std::string rows_text = info.rows > 0 ? std::to_string(info.rows) : "any";
    const std::string expected = "F32, F16, BF16 or I8 [" + rows_text + ", " + std::to_string(info.dim) + "]";
    const TensorView* rows = find(rows_name, true, expected);
    const auto is = [rows](DType type) { return rows != nullptr && rows->dtype == type; };
    const bool is_float = is(DType::f32) || is(DType::f16) || is(DType::bf16), is_scaled = is(DType::i8);
    note(rows_name);
    note(info.name + ".default");
    if (info.hashed) note(info.name + ".keys");
    if (!is_float) {
      note(info.name + ".scale");
      note(info.name + ".offset");
    }
    if (rows == nullptr) return;
    const bool rows_fit = (is_float || is_scaled) && rows->shape.size() == 2 && rows->shape[1] == info.dim &&
                          (info.rows == 0 || rows->shape[0] == info.rows);
    if (!expect(rows_fit, rows_name, expected, *rows)) return;
    const int64_t num_rows = rows->shape[0];

    TableSource table;
    table.info = info;
    table.type = *rows->dtype;
    if (is_scaled) {
      table.scale = find_floats(info.name + ".scale", true, num_rows);
      table.offset = find_floats(info.name + ".offset", true, num_rows);
    }
    table.default_row = find_default_row(info);
    const bool has_scale = !is_scaled || (table.scale != nullptr && table.offset != nullptr);
    if (has_scale) {
      const UnusableRows unusable = unusable_rows(*rows, table.scale, table.offset, pace_);
      unusable.report(info.name, "row", problems_);
      if (unusable.count > 0) return;
    }
    if (!info.hashed) {
      table.rows = rows;
      if (has_scale) found_.push_back(std::move(table));
      return;
    }
    const std::string keys_name = info.name + ".keys", keys_text = "I64 [" + std::to_string(num_rows) + "]";
    const TensorView* keys = find(keys_name, true, keys_text);
    const bool keys_fit = keys != nullptr && expect(keys->dtype == DType::i64 && keys->shape == Shape{num_rows},
                                                    keys_name, keys_text, *keys);
    if (!keys_fit || !has_scale) return;
    const HashTableChunk all = chunk_of(*keys, *rows, table.scale, table.offset);
    const auto build = [&] {
      const HashTableRows format{table.type, info.dim, options_.updatable};
      const HashTableOptions options = build_options(info, num_rows);
      if (images_ == Images::check) {
        table.unbuilt_bytes = check_hash_table(format, all, options);
      } else {
        table.hashed = build_hash_table(format, stream_of(all, format.dim * size_of(format.type), pace_), options);
      }
    };
    if (!collect(info, build)) return;
    table.scale = table.offset = nullptr;  // among the rows
    found_.push_back(std::move(table));
  }

  /// As HashTableOptions has them: one where others shall have cores.
  int threads() const { return pace_.is_limited() ? 1 : 0; }

  HashTableOptions build_options(const TableInfo& info, int64_t num_keys) const {
    HashTableOptions options;
    options.threads = threads();
    options.pages = options_.pages;
    if (!options_.updatable) return options;
    const auto capacity = options_.capacity.find(info.name);
    options.capacity = capacity != options_.capacity.end()
                           ? capacity->second
                           : num_keys + static_cast<int64_t>(std::ceil(static_cast<double>(num_keys) * options_.spare));
    return options;
  }

  const Weights& weights_;
  const Images images_;
  const LoadOptions& options_;
  Pace& pace_;
  std::set<std::string> used_;  ///< tensors, by the names that they are stored under
  Problems problems_;
  std::vector<TableSource> found_;
};

}  // namespace detail

WARPRANK_HOST_INLINE std::vector<TableSource> find_tables(const Plan& plan, const Weights& weights,
                                                          const HashTableFiles& images, Images use,
                                                          const LoadOptions& options, Pace& pace) {
  return detail::TableFinder(weights, use, options, pace).find(plan, images);
}

}}  // namespace warprank::v0
