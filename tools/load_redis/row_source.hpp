// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The rows of a table in a file, in an order that is the same each time.

#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/engine/table_delta.hpp"
#include "warprank/hash_table/file.hpp"
#include "warprank/store/parameter_store.hpp"
#include "warprank/weights/weights.hpp"

namespace load_redis {

using warprank::StoredRows;

/// Some rows, as stores keep them.
struct Rows {
  std::vector<int64_t> keys;
  std::vector<unsigned char> bytes;
};

class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual StoredRows rows() const = 0;
  virtual int64_t size() const = 0;
  /// Reads about `most` rows from a place on, 0 the first, and returns the place behind them, `end` the last.
  virtual int64_t read(int64_t at, int64_t most, Rows& to) const = 0;
  virtual int64_t end() const = 0;
};

/// An image of a hashed table.
class ImageSource final : public RowSource {
 public:
  /// Throws invalid_argument for a file that is damaged.
  explicit ImageSource(const std::string& path) : file_(path) {
    file_.check();
    table_ = warprank::view_hash_table(file_.header(), const_cast<unsigned char*>(file_.image().data()));
  }
  StoredRows rows() const override { return {table_.type, table_.dim}; }
  int64_t size() const override { return static_cast<int64_t>(*table_.size); }
  int64_t end() const override { return static_cast<int64_t>(table_.num_buckets()); }
  int64_t read(int64_t at, int64_t most, Rows& to) const override {
    to.keys.clear();
    to.bytes.clear();
    for (; at < end() && static_cast<int64_t>(to.keys.size()) < most; ++at) add_bucket(static_cast<uint64_t>(at), to);
    return at;
  }

 private:
  void add_bucket(uint64_t bucket, Rows& to) const {
    namespace ht = warprank::hash_table;
    const uint64_t* line = table_.line(bucket);
    const bool is_header = table_.shape.layout == ht::Layout::header;
    for (int place = 0; place < table_.shape.num_keys(); ++place) {
      const int slot = is_header ? ht::slot_at(line[ht::map_word], place) : place;
      if (is_header ? slot == ht::no_slot : (line[ht::inline_map_word] >> place & 1) == 0) continue;
      to.keys.push_back(static_cast<int64_t>(line[ht::key_word(table_.shape, place)]));
      const unsigned char* row = table_.row(bucket, slot);
      to.bytes.insert(to.bytes.end(), row, row + table_.row_bytes);
    }
  }

  warprank::HashTableFile file_;
  warprank::HashTableView table_;
};

/// Tensors as Tables::load reads them: "<table>" of a direct table, "<table>.keys" and "<table>.rows" of a hashed one,
/// with ".scale" and ".offset" where rows are I8.
class TensorSource final : public RowSource {
 public:
  /// Throws invalid_argument with everything that is missing or does not fit.
  TensorSource(const warprank::Weights& weights, const std::string& table) : weights_(weights) {
    using warprank::DType;
    const std::string rows = weights_.find(table + ".keys") != nullptr ? table + ".rows" : table;
    keys_ = weights_.find(table + ".keys");
    delta_.rows = weights_.find(rows);
    warprank::Problems problems;
    const auto expect = [&](const std::string& name, const warprank::TensorView* tensor, bool is_good,
                            const char* expected) {
      if (tensor == nullptr || !is_good)
        problems.add(
            "tensor '" + name + "'", expected,
            tensor == nullptr ? "none" : std::string(tensor->type_name) + " " + warprank::to_string(tensor->shape));
    };
    const warprank::TensorView* tensor = delta_.rows;
    const bool is_table =
        tensor != nullptr && tensor->shape.size() == 2 && tensor->dtype != DType::i64 && tensor->dtype;
    expect(rows, tensor, is_table, "F32, F16, BF16 or I8 [n, dim]");
    problems.throw_if_any();
    rows_ = {*tensor->dtype, tensor->shape[1]};
    const warprank::Shape numbers = {tensor->shape[0]};
    if (keys_ != nullptr)
      expect(table + ".keys", keys_, keys_->dtype == DType::i64 && keys_->shape == numbers, "I64 [n]");
    if (rows_.type == DType::i8)
      for (const auto& [suffix, to] : {std::pair{".scale", &delta_.scale}, {".offset", &delta_.offset}}) {
        *to = weights_.find(table + suffix);
        expect(table + suffix, *to, *to != nullptr && (*to)->dtype == DType::f32 && (*to)->shape == numbers, "F32 [n]");
      }
    problems.throw_if_any();
  }
  StoredRows rows() const override { return rows_; }
  int64_t size() const override { return delta_.rows->shape[0]; }
  int64_t end() const override { return size(); }
  int64_t read(int64_t at, int64_t most, Rows& to) const override {
    const int64_t count = std::min(most, size() - at), row_bytes = rows_.row_bytes();
    to.keys.resize(static_cast<size_t>(count));
    to.bytes.resize(static_cast<size_t>(count * row_bytes));
    for (int64_t i = 0; i < count; ++i) {
      to.keys[static_cast<size_t>(i)] =
          keys_ == nullptr ? at + i : warprank::load_element<int64_t>(keys_->data, at + i);
      delta_.copy_row(at + i, to.bytes.data() + i * row_bytes, row_bytes);
    }
    return at + count;
  }

 private:
  warprank::Weights weights_;
  const warprank::TensorView* keys_ = nullptr;  ///< null: rows are numbered
  warprank::TableDelta delta_;
  StoredRows rows_;
};

/// The table's rows in an image (*.hash_table) or a safetensors file. Throws invalid_argument.
inline std::unique_ptr<RowSource> open_rows(const std::string& path, const std::string& table) {
  if (std::filesystem::path(path).extension() == ".hash_table") return std::make_unique<ImageSource>(path);
  return std::make_unique<TensorSource>(warprank::Weights::open(path), table);
}

/// Tells a file from others, and from what it was before: its size and when it was changed.
inline std::string identity_of(const std::string& path) {
  struct stat file = {};
  ::stat(path.c_str(), &file);
  return std::to_string(file.st_size) + " bytes, changed " + std::to_string(file.st_mtim.tv_sec) + "." +
         std::to_string(file.st_mtim.tv_nsec);
}

}  // namespace load_redis
