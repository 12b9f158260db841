// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Finds and checks what the tables of a plan are loaded from. Every engine's store starts here.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/pace.hpp"
#include "warprank/core/shape.hpp"
#include "warprank/core/view.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/hash_table/build.hpp"

namespace warprank {

/// One table on the host. Tensors and mapped images are somebody else's, at any address.
struct TableSource {
  TableInfo info;
  DType type = DType::f32;
  const TensorView* rows = nullptr;                      ///< [n, dim] of a direct table
  const TensorView *scale = nullptr, *offset = nullptr;  ///< F32 [n] of a direct table of I8
  const TensorView* default_row = nullptr;               ///< F32 [dim]; null: zeros
  std::optional<HashTable> hashed;                       ///< a hashed table that is in memory
  std::shared_ptr<const HashTableFile> mapped;           ///< a hashed table that is not: its checked image

  int64_t unbuilt_bytes = 0;  ///< of a hashed table that was only checked: of its image

  /// Of a hashed table.
  int64_t image_bytes() const { return hashed ? hashed->bytes() : mapped ? mapped->image().size() : unbuilt_bytes; }
  /// Of a hashed table that is not only checked, all bytes of its image.
  Span<const unsigned char> image() const { return hashed ? hashed->image() : mapped->image(); }
};

/// What becomes of hashed tables: images in files are read to memory, or checked where they are mapped; tables of keys
/// and rows are built, or, where everything is only checked, not.
enum class Images { read, map, check };

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
      if (info.hashed && image != images.end()) {
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
    for (const auto& [name, capacity] : options_.capacity) {
      const bool is_hashed = has_hashed(plan, name);
      if (!options_.updatable || !is_hashed)
        problems_.add("LoadOptions::capacity of '" + name + "'", "a hashed table that is updatable",
                      is_hashed ? "one that is not" : "none of that name");
      if (is_hashed && images.count(name) != 0)
        problems_.add("LoadOptions::capacity of '" + name + "'", "a table that is loaded as keys and rows",
                      "an image, which has the room that it was built with (HashTableOptions::capacity)");
    }
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
    table.default_row = find_floats(info.name + ".default", false, info.dim);
    const auto read = [&] {
      if (images_ == Images::read) {
        table.hashed = file->read(threads(), &pace_, options_.pages);
      } else {
        file->check(threads(), &pace_);
        table.mapped = file;
      }
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
    table.default_row = find_floats(info.name + ".default", false, info.dim);
    const bool has_scale = !is_scaled || (table.scale != nullptr && table.offset != nullptr);
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

/// What each table of the plan is loaded from, in the plan's order: tensors of `weights`, which must outlive it, and
/// `images`; hashed ones are read at `pace`. Throws invalid_argument with everything that is missing, mis-shaped,
/// damaged or not asked for.
inline std::vector<TableSource> find_tables(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                                            Images use, const LoadOptions& options, Pace& pace) {
  return detail::TableFinder(weights, use, options, pace).find(plan, images);
}

}  // namespace warprank
