// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of batch/validate.hpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "warprank/batch/format.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/batch/validate.hpp"
#include "warprank/core/compiled.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/status.hpp"
#include "warprank/core/text.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

/// One pass over a blob, front to back; every step returns whether to go on, and sets the status if not.
class BlobValidator {
 public:
  BlobValidator(Span<const std::byte> blob, const BatchLayout& layout)
      : blob_(blob), layout_(layout), tables_(layout, 1) {}

  Status run() {
    const bool good = check_header() && check_axes() && check_inputs() && check_backing() && check_end();
    return good ? Status{} : std::move(status_);
  }

 private:
  bool fail(StatusCode code, Part part, std::string expected, std::string got) {
    status_ = {code, Problem{"blob", part.text(), std::move(expected), std::move(got)}.to_string()};
    return false;
  }
  bool expect(const char* what, uint64_t expected, uint64_t got) {
    return expected == got || fail(StatusCode::malformed, {what}, std::to_string(expected), std::to_string(got));
  }
  Part axis_part(int axis) const { return {"axis", &layout_.axis(AxisSlot{axis}).name}; }
  uint32_t table_entry(int64_t table_at, int64_t index) const {
    return load_unaligned<uint32_t>(blob_.data() + table_at + 4 * index);
  }
  int64_t rows(int axis) const { return table_entry(tables_.rows_at, axis); }

  bool check_header() {
    if (blob_.size() < static_cast<int64_t>(sizeof(BlobHeader)))
      return fail(StatusCode::malformed, {"size"}, "at least the 40 bytes of a header",
                  std::to_string(blob_.size()) + " bytes");
    const auto header = load_unaligned<BlobHeader>(blob_.data());
    if (std::memcmp(header.magic, blob_magic, sizeof blob_magic) != 0)
      return fail(StatusCode::malformed, {"magic"}, "\"warprank\"", "other bytes");
    if (header.version < 1 || header.version > batch_format_version)
      return fail(StatusCode::wrong_version, {"version of the format"}, "1 to " + std::to_string(batch_format_version),
                  std::to_string(header.version));
    tables_ = BlobTables(layout_, header.version);
    end_ = tables_.end;
    if (header.fingerprint != layout_.fingerprint())
      return fail(StatusCode::wrong_plan, {"fingerprint of the plan"}, hexadecimal(layout_.fingerprint()),
                  hexadecimal(header.fingerprint));
    if (header.bytes % 8 != 0)
      return fail(StatusCode::malformed, {"size"}, "a size that is a multiple of 8 bytes",
                  std::to_string(header.bytes));
    if (header.bytes != blob_.size())
      return fail(StatusCode::malformed, {"size"},
                  "the " + std::to_string(header.bytes) + " bytes that its header announces",
                  std::to_string(blob_.size()) + " bytes");
    return expect("axes", layout_.axes().size(), header.num_axes) &&
           expect("ids inputs", layout_.ids().size(), header.num_ids) &&
           expect("dense inputs", layout_.dense().size(), header.num_dense) &&
           expect("reserved bytes", 0, header.reserved) && check_tables();
  }

  bool check_tables() {
    if (tables_.end > blob_.size())
      return fail(StatusCode::malformed, {"size"}, std::to_string(tables_.end) + " bytes of header and tables",
                  std::to_string(blob_.size()) + " bytes");
    return check_padding({"tables"}, tables_.values_end, tables_.end) && check_types();
  }

  /// The type of an input; 0 in blobs without types.
  int type(int64_t index) const {
    const bool has_types = tables_.values_end > tables_.types_at;
    return has_types ? static_cast<int>(load_unaligned<uint8_t>(blob_.data() + tables_.types_at + index)) : 0;
  }
  bool check_types() {
    if (tables_.values_end == tables_.types_at) return true;
    int64_t index = 0;
    bool any_narrow = false;
    const auto check = [&](Part part, int last) {
      const int got = type(index++);
      any_narrow = any_narrow || got != 0;
      return got <= last ||
             fail(StatusCode::malformed, part, "a type of 0 to " + std::to_string(last), std::to_string(got));
    };
    for (const IdsInfo& info : layout_.ids())
      if (!check({"ids", &info.name}, static_cast<int>(IdsWire::i32))) return false;
    for (const DenseInfo& info : layout_.dense())
      if (!check({"dense", &info.name}, static_cast<int>(DenseWire::bf16))) return false;
    return any_narrow || fail(StatusCode::malformed, {"version of the format"}, "1, since no input is narrow", "2");
  }

  bool check_padding(Part part, int64_t begin, int64_t end) {
    const bool zeros =
        std::all_of(blob_.begin() + begin, blob_.begin() + end, [](std::byte b) { return b == std::byte{0}; });
    return zeros || fail(StatusCode::malformed, part, "zeros after its last value", "other bytes");
  }

  /// Takes the next section, `count` values of `value_bytes` each, whose position a table gives. The only place where
  /// bytes of sections become readable: it holds for hostile counts too, since it divides instead of multiplying.
  bool take_section(Part part, int64_t position, int64_t count, int64_t value_bytes) {
    if (position != end_)
      return fail(StatusCode::malformed, part,
                  "data at byte " + std::to_string(end_) + ", where the section before it ends",
                  "byte " + std::to_string(position));
    const int64_t available = blob_.size() - end_;
    if (count > available / value_bytes)
      return fail(StatusCode::malformed, part,
                  std::to_string(count) + " rows of " + std::to_string(value_bytes) + " bytes",
                  std::to_string(available) + " bytes up to the end of the blob");
    const int64_t values_end = end_ + count * value_bytes;
    end_ = align_8(values_end);  // within the blob, whose size is a multiple of 8
    return check_padding(part, values_end, end_);
  }

  bool check_axes() {
    if (rows(0) != 1) return fail(StatusCode::inconsistent, axis_part(0), "1 row", std::to_string(rows(0)));
    for (int axis = 0; axis < static_cast<int>(layout_.axes().size()); ++axis)
      if (!check_axis(axis)) return false;
    return true;
  }

  bool check_axis(int axis) {
    const AxisInfo& info = layout_.axis(AxisSlot{axis});
    const int64_t position = table_entry(tables_.offsets_at, axis);
    if (layout_.has_offsets(AxisSlot{axis})) {
      const int64_t num_offsets = rows(info.parent) + 1;
      const Part part{"offsets of axis", &info.name};
      return take_section(part, position, num_offsets, 4) &&
             check_offsets(part, info, position, num_offsets, rows(axis));
    }
    if (position != 0)
      return fail(StatusCode::malformed, axis_part(axis), "no offsets: position 0", std::to_string(position));
    const bool fits = axis == 0 || info.keep_last == 0 || rows(axis) <= info.keep_last;
    return fits || fail(StatusCode::inconsistent, axis_part(axis),
                        "at most " + std::to_string(info.keep_last) + " rows", std::to_string(rows(axis)));
  }

  bool check_offsets(Part part, const AxisInfo& info, int64_t position, int64_t count, int64_t num_rows) {
    const std::byte* offsets = blob_.data() + position;
    int64_t before = load_unaligned<uint32_t>(offsets);
    if (before != 0) return fail(StatusCode::inconsistent, part, "the first to be 0", std::to_string(before));
    const int64_t longest = info.keep_last > 0 ? info.keep_last : std::numeric_limits<int64_t>::max();
    for (int64_t i = 1; i < count; ++i) {
      const int64_t offset = load_unaligned<uint32_t>(offsets + 4 * i);
      if (offset < before)
        return fail(StatusCode::inconsistent, part, "offsets that do not decrease",
                    std::to_string(offset) + " after " + std::to_string(before));
      if (offset - before > longest)
        return fail(StatusCode::inconsistent, part, "at most " + std::to_string(longest) + " rows per parent row",
                    std::to_string(offset - before) + " in segment " + std::to_string(i - 1));
      before = offset;
    }
    return before == num_rows ||
           fail(StatusCode::inconsistent, part, "the last to be the row count " + std::to_string(num_rows),
                std::to_string(before));
  }

  bool check_inputs() {
    int64_t index = 0;
    for (const IdsInfo& info : layout_.ids()) {
      const int64_t row_bytes = size_of(static_cast<IdsWire>(type(index)));
      if (!check_input({"ids", &info.name}, index++, info.axis, row_bytes, info.default_id.has_value())) return false;
    }
    for (const DenseInfo& info : layout_.dense()) {
      const Part part{"dense", &info.name};
      const int64_t position = table_entry(tables_.data_at, index);
      const auto wire = static_cast<DenseWire>(type(index));
      const int64_t row_bytes = size_of(wire) * info.width;
      if (!check_input(part, index++, info.axis, row_bytes, info.default_value.has_value())) return false;
      if (position != 0 && !check_finite(part, position, rows(info.axis), info.width, wire)) return false;
    }
    return true;
  }

  bool check_input(Part part, int64_t index, int axis, int64_t row_bytes, bool has_default) {
    const int64_t position = table_entry(tables_.data_at, index);
    if (position != 0) return take_section(part, position, rows(axis), row_bytes);
    return has_default || rows(axis) == 0 ||
           fail(StatusCode::missing_input, part, "values, since it has no default", "none");
  }

  bool check_finite(Part part, int64_t position, int64_t num_rows, int64_t width, DenseWire wire) {
    const int64_t bad = find_not_finite(blob_.data() + position, num_rows * width, wire);
    return bad < 0 ||
           fail(StatusCode::not_finite, part, "finite values", "NaN or infinity in " + place_text(bad, width));
  }

  /// A row count must be paid for by bytes: otherwise 100 bytes could ask for 4 billion rows.
  bool check_backing() {
    for (int axis = 1; axis < static_cast<int>(layout_.axes().size()); ++axis)
      if (rows(axis) > 0 && !layout_.has_children(AxisSlot{axis}) && !any_input_set(axis))
        return fail(StatusCode::inconsistent, axis_part(axis), "no rows, since none of its inputs is set",
                    std::to_string(rows(axis)) + " rows");
    return true;
  }
  bool any_input_set(int axis) const {
    int64_t index = 0;
    const auto is_set = [&](const auto& info) {
      return table_entry(tables_.data_at, index++) != 0 && info.axis == axis;
    };
    return std::any_of(layout_.ids().begin(), layout_.ids().end(), is_set) ||
           std::any_of(layout_.dense().begin(), layout_.dense().end(), is_set);
  }

  bool check_end() {
    return end_ == blob_.size() ||
           fail(StatusCode::malformed, {"size"}, "to end with its last section, at byte " + std::to_string(end_),
                std::to_string(blob_.size()) + " bytes");
  }

  Span<const std::byte> blob_;
  const BatchLayout& layout_;
  BlobTables tables_;
  int64_t end_ = 0;  // of the sections taken so far
  Status status_;
};

}  // namespace detail

WARPRANK_HOST_INLINE Status validate_blob(Span<const std::byte> blob, const BatchLayout& layout) {
  return detail::BlobValidator(blob, layout).run();
}

}}  // namespace warprank::v0
