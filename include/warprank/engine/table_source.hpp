// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Finds and checks what the tables of a plan are loaded from. Every engine's store starts here.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
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

  /// Of a hashed table, all bytes of its image.
  Span<const unsigned char> image() const { return hashed ? hashed->image() : mapped->image(); }
};

/// What becomes of images in files: hashed tables in memory, or checked where they are mapped.
enum class Images { read, map };

namespace detail {

class TableFinder {
 public:
  TableFinder(const Weights& weights, Images images) : weights_(weights), images_(images) {}

  /// Throws invalid_argument with everything that is missing, mis-shaped, damaged or not asked for.
  std::vector<TableSource> find(const Plan& plan, const HashTableFiles& images) {
    for (const TableInfo& info : plan.source().tables) {
      const auto image = images.find(info.name);
      if (info.hashed && image != images.end()) {
        used_.insert(info.name + ".hash_table");
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
      if (used_.count(name + ".hash_table") == 0)
        problems_.add(file->path(), "the image of a hashed table of the model", "table '" + name + "'");
    problems_.throw_if_any();
    return std::move(found_);
  }

 private:
  /// Finds a tensor and notes that it was used; reports it when it is missing though needed. Null when there is none.
  const TensorView* find(const std::string& name, bool needed, const std::string& expected) {
    used_.insert(name);
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
    const HashTableHeader& header = file->header();
    const auto expected = [&](const char* what, int64_t wanted, uint64_t got) {
      if (static_cast<uint64_t>(wanted) != got)
        problems_.add("table '" + info.name + "': " + file->path() + ": " + what, std::to_string(wanted),
                      std::to_string(got));
      return static_cast<uint64_t>(wanted) == got;
    };
    if (!expected("dim", info.dim, header.dim)) return;
    if (info.rows > 0 && !expected("rows", info.rows, header.size)) return;
    TableSource table;
    table.info = info;
    table.type = static_cast<DType>(header.type);
    table.default_row = find_floats(info.name + ".default", false, info.dim);
    const auto read = [&] {
      if (images_ == Images::read) {
        table.hashed = file->read();
      } else {
        file->check();
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
    if (rows == nullptr) return;
    const bool rows_fit = rows->dtype && *rows->dtype != DType::i64 && rows->shape.size() == 2 &&
                          rows->shape[1] == info.dim && (info.rows == 0 || rows->shape[0] == info.rows);
    if (!expect(rows_fit, rows_name, expected, *rows)) return;
    const int64_t num_rows = rows->shape[0];

    TableSource table;
    table.info = info;
    table.type = *rows->dtype;
    const bool is_scaled = table.type == DType::i8;
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
    if (!collect(info, [&] { table.hashed = build_hash_table({table.type, info.dim}, all); })) return;
    table.scale = table.offset = nullptr;  // among the rows
    found_.push_back(std::move(table));
  }

  const Weights& weights_;
  const Images images_;
  std::set<std::string> used_;
  Problems problems_;
  std::vector<TableSource> found_;
};

}  // namespace detail

/// What each table of the plan is loaded from, in the plan's order: tensors of `weights`, which must outlive it, and
/// `images`. Throws invalid_argument with everything that is missing, mis-shaped, damaged or not asked for.
inline std::vector<TableSource> find_tables(const Plan& plan, const Weights& weights, const HashTableFiles& images,
                                            Images use) {
  return detail::TableFinder(weights, use).find(plan, images);
}

}  // namespace warprank
