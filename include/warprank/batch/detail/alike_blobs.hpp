// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The blobs of requests that differ only in the values of their one row of the outermost axis.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "warprank/batch/detail/staging.hpp"
#include "warprank/batch/detail/wire_values.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/batch/request_columns.hpp"
#include "warprank/core/error.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// One blob, made as a Request makes it, is the pattern of all; values are converted column by column.
class AlikeBlobs {
 public:
  /// The layout outlives it, and the columns do. Throws what Batch::add_requests throws.
  AlikeBlobs(const BatchLayout& layout, int64_t count, const RequestColumns& columns) : count_(count) {
    check(layout, columns);
    are_valid_ = make_pattern(layout, columns) && count <= std::numeric_limits<int64_t>::max() / bytes();
    if (!are_valid_) return;
    for (const auto& [slot, values] : columns.ids) {
      const IdsInfo& info = layout.ids(slot);
      add_column(slot.index, values.bytes(), IdsWire::i64, info.wire, 1, [&, &values = values](std::byte* to) {
        return convert_ids(values.bytes(), IdsWire::i64, count_, to, info.wire, info.out_of_range);
      });
    }
    for (const auto& [slot, values] : columns.dense) {
      const DenseInfo& info = layout.dense(slot);
      are_valid_ = are_valid_ && find_not_finite(values.bytes(), values.size(), DenseWire::f32) < 0;
      add_column(static_cast<int64_t>(layout.ids().size()) + slot.index, values.bytes(), DenseWire::f32, info.wire,
                 info.width, [&, &values = values](std::byte* to) {
                   return convert_dense(values.bytes(), DenseWire::f32, values.size(), to, info.wire,
                                        info.out_of_range);
                 });
    }
  }

  /// Whether no value is wrong and none is missing: else requests have statuses of their own.
  bool are_valid() const { return are_valid_; }
  /// Of one blob.
  int64_t bytes() const { return static_cast<int64_t>(pattern_.size()); }
  void write(std::byte* to) const {
    for (int64_t r = 0; r < count_; ++r, to += bytes()) {
      std::memcpy(to, pattern_.data(), pattern_.size());
      for (const Column& column : columns_) {
        const std::byte* row = column.values + r * column.row_bytes;
        if (column.row_bytes == 8)
          std::memcpy(to + column.section, row, 8);  // of a known size: one store
        else
          std::memcpy(to + column.section, row, static_cast<size_t>(column.row_bytes));
      }
    }
  }

 private:
  struct Column {
    const std::byte* values;
    int64_t row_bytes, section;
  };

  void check(const BatchLayout& layout, const RequestColumns& columns) const {
    Problems problems;
    std::set<std::string> given;
    const auto check_column = [&](const std::string& what, int axis, int64_t width, int64_t got) {
      if (!given.insert(what).second) problems.add(what, "to be given once", "a second time");
      if (axis != 0)
        problems.add(what, "an input of the outermost axis", "one of axis '" + layout.axis(AxisSlot{axis}).name + "'");
      else if (got % width != 0 || got / width != count_)
        problems.add(what, std::to_string(count_) + " rows of " + std::to_string(width),
                     std::to_string(got) + " values");
    };
    if (count_ < 0) problems.add("number of requests", "0 or more", std::to_string(count_));
    for (const auto& [slot, values] : columns.ids) {
      Staging::check_slot("ids", slot.index, layout.ids().size());
      const IdsInfo& info = layout.ids(slot);
      check_column("ids '" + info.name + "'", info.axis, 1, values.size());
    }
    for (const auto& [slot, values] : columns.dense) {
      Staging::check_slot("dense", slot.index, layout.dense().size());
      const DenseInfo& info = layout.dense(slot);
      check_column("dense '" + info.name + "'", info.axis, info.width, values.size());
    }
    problems.throw_if_any();
  }

  /// False where an input is missing.
  bool make_pattern(const BatchLayout& layout, const RequestColumns& columns) {
    Staging staging;
    staging.reset(layout);
    std::vector<float> zeros;
    for (const auto& [slot, values] : columns.ids) staging.set_ids(slot, {0});
    for (const auto& [slot, values] : columns.dense) {
      zeros.assign(static_cast<size_t>(layout.dense(slot).width), 0);
      staging.set_dense(slot, zeros);
    }
    if (!staging.seal()) return false;
    pattern_.resize(static_cast<size_t>(staging.bytes()));
    staging.write(pattern_.data());
    for (int64_t i = 0; i < static_cast<int64_t>(layout.ids().size() + layout.dense().size()); ++i)
      sections_.push_back(staging.section(i));
    return true;
  }

  template <class Wire, class Convert>
  void add_column(int64_t input, const std::byte* given, Wire given_as, Wire wire, int64_t width, Convert&& convert) {
    const int64_t row_bytes = width * size_of(wire), section = sections_[static_cast<size_t>(input)];
    if (given_as == wire) {
      columns_.push_back({given, row_bytes, section});
      return;
    }
    std::vector<std::byte>& converted = converted_.emplace_back(static_cast<size_t>(count_ * row_bytes));
    are_valid_ = convert(converted.data()) < 0 && are_valid_;
    columns_.push_back({converted.data(), row_bytes, section});
  }

  int64_t count_;
  bool are_valid_ = true;
  std::vector<std::byte> pattern_;
  std::vector<int64_t> sections_;                  // by input
  std::vector<std::vector<std::byte>> converted_;  // whose memory stays where it is when there are more
  std::vector<Column> columns_;
};

}}}  // namespace warprank::v0::detail
