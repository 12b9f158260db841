// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The blobs of requests that are given as columns.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "warprank/batch/detail/column_rows.hpp"
#include "warprank/batch/detail/wire_values.hpp"
#include "warprank/batch/format.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/batch/request_columns.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// Values are checked and converted column by column, and copied request by request.
class ColumnBlobs {
 public:
  /// What is given outlives it.
  ColumnBlobs(const ColumnRows& rows, const RequestColumns& columns)
      : layout_(rows.layout()), rows_(rows), tables_(layout_) {
    are_valid_ = have_simple_rows() && is_complete(columns);
    if (!are_valid_) return;
    for (const auto& [slot, values] : columns.ids) {
      const IdsInfo& info = layout_.ids(slot);
      add_column(slot.index, info.axis, values.bytes(), IdsWire::i64, info.wire, 1,
                 [&, &values = values](std::byte* to) {
                   return convert_ids(values.bytes(), IdsWire::i64, values.size(), to, info.wire, info.out_of_range);
                 });
    }
    for (const auto& [slot, values] : columns.dense) {
      const DenseInfo& info = layout_.dense(slot);
      are_valid_ = are_valid_ && find_not_finite(values.bytes(), values.size(), DenseWire::f32) < 0;
      add_column(static_cast<int64_t>(layout_.ids().size()) + slot.index, info.axis, values.bytes(), DenseWire::f32,
                 info.wire, info.width, [&, &values = values](std::byte* to) {
                   return convert_dense(values.bytes(), DenseWire::f32, values.size(), to, info.wire,
                                        info.out_of_range);
                 });
    }
    std::sort(columns_.begin(), columns_.end(), [](const Column& a, const Column& b) { return a.input < b.input; });
    are_valid_ = are_valid_ && place();
  }

  /// Whether no value is wrong, none is missing, and the rows that requests keep are next to one another: else each has
  /// a status of its own, or is packed by itself.
  bool are_valid() const { return are_valid_; }
  /// [requests + 1]: where each blob begins, and where the last ends.
  Span<const int64_t> begins() const { return begins_; }

  void write(std::byte* to) const {
    std::vector<std::byte> tables(static_cast<size_t>(tables_.end));
    write_header(layout_, 0, tables.data());
    if (tables_.values_end > tables_.types_at) write_types(layout_, tables.data() + tables_.types_at);
    const bool are_alike = layout_.axes().size() == 1;
    const int64_t num_written = are_alike ? std::min<int64_t>(rows_.num_requests(), 1) : rows_.num_requests();
    std::vector<RowRange> ranges;  // of each request in turn
    for (int64_t r = 0; r < num_written; ++r) write_request(r, tables, ranges, to + begins_[static_cast<size_t>(r)]);
    if (are_alike) write_alike(to);
  }

 private:
  struct Column {
    const std::byte* values;
    int64_t row_bytes, input;
    size_t axis;
  };

  static void store(std::byte* to, int64_t value) {
    const auto narrow = static_cast<uint32_t>(value);
    std::memcpy(to, &narrow, sizeof narrow);
  }

  /// Whether the rows of an axis that a request keeps are one range.
  bool have_simple_rows() const {
    for (int axis = 1; axis < static_cast<int>(layout_.axes().size()); ++axis) {
      const AxisSlot slot{axis};
      if (layout_.has_offsets(slot) && layout_.axis(slot).keep_last > 0 && rows_.rows(axis) > 0) return false;
    }
    return true;
  }

  /// Whether each input has values or a default, or its axis no rows.
  bool is_complete(const RequestColumns& columns) const {
    std::vector<bool> is_missing;
    for (const IdsInfo& info : layout_.ids())
      is_missing.push_back(!info.default_id.has_value() && rows_.rows(info.axis) > 0);
    for (const DenseInfo& info : layout_.dense())
      is_missing.push_back(!info.default_value.has_value() && rows_.rows(info.axis) > 0);
    for (const auto& [slot, values] : columns.ids) is_missing[static_cast<size_t>(slot.index)] = false;
    for (const auto& [slot, values] : columns.dense)
      is_missing[layout_.ids().size() + static_cast<size_t>(slot.index)] = false;
    return std::find(is_missing.begin(), is_missing.end(), true) == is_missing.end();
  }

  template <class Wire, class Convert>
  void add_column(int64_t input, int axis, const std::byte* given, Wire given_as, Wire wire, int64_t width,
                  Convert&& convert) {
    const int64_t row_bytes = width * size_of(wire);
    if (given_as != wire) {
      const auto bytes = static_cast<size_t>(rows_.rows(axis) * row_bytes);
      std::vector<std::byte>& converted = converted_.emplace_back(bytes);
      are_valid_ = convert(converted.data()) < 0 && are_valid_;
      given = converted.data();
    }
    columns_.push_back({given, row_bytes, input, static_cast<size_t>(axis)});
  }

  bool place() {
    constexpr int64_t most_rows = std::numeric_limits<uint32_t>::max();
    int64_t bytes_of_all = tables_.end;  // what each request has
    for (const Column& column : columns_)
      if (column.axis == 0) bytes_of_all += align_8(column.row_bytes);
    begins_.reserve(static_cast<size_t>(rows_.num_requests() + 1));
    begins_.push_back(0);
    std::vector<RowRange> ranges;
    for (int64_t r = 0; r < rows_.num_requests(); ++r) {
      int64_t bytes = bytes_of_all;
      if (layout_.axes().size() > 1) {
        rows_.find_kept(r, ranges);
        for (size_t axis = 1; axis < ranges.size(); ++axis) {
          if (ranges[axis].size() > most_rows) return false;
          bytes += bytes_of_offsets(axis, ranges);
        }
        for (const Column& column : columns_)
          if (column.axis > 0) bytes += align_8(ranges[column.axis].size() * column.row_bytes);
      }
      if (bytes > max_blob_bytes) return false;
      begins_.push_back(begins_.back() + bytes);
    }
    return true;
  }

  void write_request(int64_t r, const std::vector<std::byte>& tables, std::vector<RowRange>& ranges,
                     std::byte* blob) const {
    std::memcpy(blob, tables.data(), tables.size());
    store(blob + offsetof(BlobHeader, bytes), begins_[static_cast<size_t>(r + 1)] - begins_[static_cast<size_t>(r)]);
    rows_.find_kept(r, ranges);
    write_values(ranges, write_offsets(ranges, blob), blob);
  }

  int64_t bytes_of_offsets(size_t axis, const std::vector<RowRange>& ranges) const {
    const int parent = layout_.axes()[axis].parent;
    return parent > 0 ? align_8(4 * (ranges[static_cast<size_t>(parent)].size() + 1)) : 0;
  }

  /// The tables of axes, and their sections. Returns where the sections end.
  int64_t write_offsets(const std::vector<RowRange>& ranges, std::byte* blob) const {
    int64_t position = tables_.end;
    for (size_t axis = 0; axis < ranges.size(); ++axis) {
      store(blob + tables_.rows_at + 4 * static_cast<int64_t>(axis), ranges[axis].size());
      const int64_t bytes = axis == 0 ? 0 : bytes_of_offsets(axis, ranges);
      if (bytes == 0) continue;
      store(blob + tables_.offsets_at + 4 * static_cast<int64_t>(axis), position);
      std::memset(blob + position, 0, static_cast<size_t>(bytes));
      const Offsets& offsets = rows_.offsets(static_cast<int>(axis));
      const RowRange parents = ranges[static_cast<size_t>(layout_.axes()[axis].parent)];
      for (int64_t s = 0; s < (offsets.size() == 0 ? 0 : parents.size()); ++s)
        store(blob + position + 4 * (s + 1), offsets[parents.begin + s + 1] - offsets[parents.begin]);
      position += bytes;
    }
    return position;
  }

  void write_values(const std::vector<RowRange>& ranges, int64_t position, std::byte* blob) const {
    for (const Column& column : columns_) {
      store(blob + tables_.data_at + 4 * column.input, position);
      const RowRange rows = ranges[column.axis];
      const int64_t bytes = rows.size() * column.row_bytes, padded = align_8(bytes);
      const std::byte* const from = column.values + rows.begin * column.row_bytes;
      if (bytes == 8) {
        std::memcpy(blob + position, from, 8);  // of a known size: one store
      } else if (bytes > 0) {
        std::memset(blob + position + padded - 8, 0, 8);
        std::memcpy(blob + position, from, static_cast<size_t>(bytes));
      }
      position += padded;
    }
  }

  /// Blobs behind the first that differ from it in their values alone: requests of a row each.
  void write_alike(std::byte* first) const {
    const int64_t count = rows_.num_requests();
    if (count < 2) return;
    const int64_t bytes = begins_[1];
    for (int64_t made = 1; made < count; made *= 2)
      std::memcpy(first + made * bytes, first, static_cast<size_t>(std::min(made, count - made) * bytes));
    for (const Column& column : columns_) {
      std::byte* const values = first + load_unaligned<uint32_t>(first + tables_.data_at + 4 * column.input);
      for (int64_t r = 1; r < count; ++r) {
        const std::byte* const from = column.values + r * column.row_bytes;
        if (column.row_bytes == 8)
          std::memcpy(values + r * bytes, from, 8);  // of a known size: one store
        else
          std::memcpy(values + r * bytes, from, static_cast<size_t>(column.row_bytes));
      }
    }
  }

  const BatchLayout& layout_;
  const ColumnRows& rows_;
  const BlobTables tables_;
  bool are_valid_ = true;
  std::vector<std::vector<std::byte>> converted_;  // whose memory stays where it is when there are more
  std::vector<Column> columns_;                    // in the order of inputs
  std::vector<int64_t> begins_;
};

}}}  // namespace warprank::v0::detail
