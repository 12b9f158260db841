// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One request between its first setter and its blob: values are copied here as they are set, and packed once all axes
/// are known.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "warprank/batch/detail/wire_values.hpp"
#include "warprank/batch/format.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/batch/values.hpp"
#include "warprank/core/compiled.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/status.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// Setters copy; `seal` decides what is kept and where it goes; `write` packs. Once something is wrong the status says
/// so and whatever follows is ignored. Memory is kept from one request to the next.
class Staging {
 public:
  static void check_slot(const char* what, int index, size_t count) {
    if (index < 0 || index >= static_cast<int>(count))
      throw invalid_argument(std::string("slot of ") + what, "an index below " + std::to_string(count),
                             std::to_string(index));
  }

  /// Begins an empty request. The layout must outlive it.
  WARPRANK_HOST_INLINE void reset(const BatchLayout& layout);

  const Status& status() const { return status_; }

  WARPRANK_HOST_INLINE void set_ids(IdsSlot slot, const Values<int64_t>& values);

  WARPRANK_HOST_INLINE void set_dense(DenseSlot slot, const Values<float>& values);

  WARPRANK_HOST_INLINE void set_lengths(AxisSlot slot, const Lengths& lengths);

  WARPRANK_HOST_INLINE void set_offsets(AxisSlot slot, const Offsets& offsets);

  /// Call after the last setter. Whether there is a blob to write.
  WARPRANK_HOST_INLINE bool seal();

  /// The size of the blob, once sealed.
  int64_t bytes() const { return bytes_; }

  WARPRANK_HOST_INLINE void write(std::byte* blob) const;

  /// Once sealed: where the blob has the values of an input, which is numbered with the ids first; 0: nowhere.
  int64_t section(int64_t input) const { return inputs_[static_cast<size_t>(input)].section; }

 private:
  struct AxisRows {
    int64_t rows = -1;     // as set; -1: unknown
    Part source;           // what said so
    int64_t offsets = -1;  // where they begin in offsets_; -1: not given
    int64_t first_range = 0, end_range = 0;
    int64_t kept = 0;     // rows of the blob
    int64_t section = 0;  // where the blob's offsets go; 0: nowhere
  };
  struct InputValues {
    int64_t begin = -1;  // in values_; -1: not set
    int64_t row_bytes = 0;
    int axis = 0;
    int64_t section = 0;  // where the blob's values go; 0: nowhere
  };
  /// Rows [begin, end) of an axis, kept.
  struct Range {
    int64_t begin, end;
  };

  bool fail(StatusCode code, Part part, std::string expected, std::string got) {
    status_ = {code, Problem{"", part.text(), std::move(expected), std::move(got)}.to_string()};
    return false;
  }

  AxisRows& axis_rows(int axis) { return axes_[static_cast<size_t>(axis)]; }
  const AxisRows& axis_rows(int axis) const { return axes_[static_cast<size_t>(axis)]; }
  std::string rows_text(int axis) const {
    const AxisRows& known = axis_rows(axis);
    return std::to_string(known.rows) + (known.rows == 1 ? " row" : " rows") + " of axis '" +
           layout_->axis(AxisSlot{axis}).name + "', as " + known.source.text() + " has";
  }

  bool set_rows(int axis, int64_t rows, Part part) {
    AxisRows& known = axis_rows(axis);
    if (known.rows >= 0 && known.rows != rows)
      return fail(StatusCode::inconsistent, part, rows_text(axis), std::to_string(rows));
    if (known.rows < 0) known.source = part;
    known.rows = rows;
    return true;
  }

  /// Appends values to values_ in the type that blobs have; gives the first that cannot be, or -1.
  template <class Type, class Convert>
  int64_t append(const std::byte* values, Type given, int64_t count, Type wire, OutOfRange out_of_range,
                 Convert convert) {
    if (given == wire) {
      values_.insert(values_.end(), values, values + count * size_of(wire));
      return -1;
    }
    const size_t begin = values_.size();
    values_.resize(begin + static_cast<size_t>(count * size_of(wire)));
    return convert(values, given, count, values_.data() + begin, wire, out_of_range);
  }

  template <class Append>
  void store(int64_t index, Part part, int axis, int64_t rows, int64_t row_bytes, Append&& append_values) {
    InputValues& input = inputs_[static_cast<size_t>(index)];
    if (input.begin >= 0) {
      fail(StatusCode::set_twice, part, "to be set once", "a second time");
      return;
    }
    const auto begin = static_cast<int64_t>(values_.size());
    append_values();  // when it throws, the input is not set
    if (!set_rows(axis, rows, part)) return;
    input = {begin, row_bytes, axis, 0};
  }

  bool push_segment(Part part, int64_t length) {
    const int64_t before = offsets_.back();
    if (length < 0)
      return fail(StatusCode::inconsistent, part, "no negative lengths, no offsets that decrease",
                  "a segment below 0 rows");
    if (length > std::numeric_limits<uint32_t>::max() - before)
      return fail(StatusCode::too_large, part, "fewer than 2^32 rows", "more");
    offsets_.push_back(static_cast<uint32_t>(before + length));
    return true;
  }

  /// Takes the offsets from offsets_[first] on for an axis.
  void divide(int axis, Part part, int64_t first) {
    if (axis == 0) {
      fail(StatusCode::inconsistent, part, "an axis that is nested in another", "the outermost");
      return;
    }
    const auto begin = offsets_.begin() + first;
    const int64_t segments = offsets_.end() - begin - 1;
    if (!set_rows(axis, offsets_.back(), part) || !set_rows(layout_->axis(AxisSlot{axis}).parent, segments, part))
      return;
    AxisRows& known = axis_rows(axis);
    if (known.offsets < 0) {
      known.offsets = first;
    } else if (std::equal(begin, offsets_.end(), offsets_.begin() + known.offsets)) {
      offsets_.erase(begin, offsets_.end());
    } else {
      fail(StatusCode::set_twice, part, "the same as before, since inputs of an axis share them", "others");
    }
  }

  bool complete_axes() {
    for (int axis = 1; axis < static_cast<int>(axes_.size()); ++axis) {
      AxisRows& known = axis_rows(axis);
      known.rows = std::max<int64_t>(known.rows, 0);
      const AxisInfo& info = layout_->axis(AxisSlot{axis});
      if (known.rows > 0 && known.offsets < 0 && layout_->has_offsets(AxisSlot{axis}))
        return fail(StatusCode::inconsistent, known.source,
                    "lengths or offsets of axis '" + info.name + "', which is nested in '" +
                        layout_->axis(AxisSlot{info.parent}).name + "'",
                    "none");
    }
    return true;
  }

  bool check_missing() {
    size_t index = 0;
    const auto check = [&](const char* kind, const std::string& name, int axis, bool has_default) {
      return inputs_[index++].begin >= 0 || has_default || axis_rows(axis).rows == 0 ||
             fail(StatusCode::missing_input, {kind, &name}, rows_text(axis) + ", since it has no default", "none");
    };
    for (const IdsInfo& info : layout_->ids())
      if (!check("ids", info.name, info.axis, info.default_id.has_value())) return false;
    for (const DenseInfo& info : layout_->dense())
      if (!check("dense", info.name, info.axis, info.default_value.has_value())) return false;
    return true;
  }

  /// As validate_blob demands it.
  bool check_backing() {
    for (int axis = 1; axis < static_cast<int>(axes_.size()); ++axis) {
      const auto is_set = [&](const InputValues& input) { return input.begin >= 0 && input.axis == axis; };
      if (axis_rows(axis).rows > 0 && !layout_->has_children(AxisSlot{axis}) &&
          std::none_of(inputs_.begin(), inputs_.end(), is_set))
        return fail(StatusCode::inconsistent, axis_rows(axis).source, "an input that is set on the axis", "none");
    }
    return true;
  }

  /// The rows of `axis` in row `s` of its parent, before any are dropped.
  Range segment(int axis, int64_t s) const {
    const AxisRows& known = axis_rows(axis);
    if (known.offsets >= 0)
      return {offsets_[static_cast<size_t>(known.offsets + s)], offsets_[static_cast<size_t>(known.offsets + s + 1)]};
    return {0, layout_->has_offsets(AxisSlot{axis}) ? 0 : known.rows};
  }
  /// The last rows of a segment, as many as keep_last allows.
  Range kept_segment(int axis, int64_t s) const {
    const Range all = segment(axis, s);
    const int64_t most = layout_->axis(AxisSlot{axis}).keep_last;
    return {most == 0 ? all.begin : std::max(all.begin, all.end - most), all.end};
  }
  template <class Body>
  void for_each_kept_row(int axis, Body&& body) const {
    const AxisRows& known = axis_rows(axis);
    for (int64_t r = known.first_range; r < known.end_range; ++r) {
      const Range range = ranges_[static_cast<size_t>(r)];
      for (int64_t row = range.begin; row < range.end; ++row) body(row);
    }
  }

  /// Lists the kept rows of an axis in as few ranges as possible: one where nothing is dropped.
  void choose_rows(int axis) {
    AxisRows& known = axis_rows(axis);
    const auto first = static_cast<int64_t>(ranges_.size());
    known.kept = 0;
    const auto add = [&](Range range) {
      known.kept += range.end - range.begin;
      if (range.begin == range.end) return;
      if (static_cast<int64_t>(ranges_.size()) > first && ranges_.back().end == range.begin) {
        ranges_.back().end = range.end;
      } else {
        ranges_.push_back(range);
      }
    };
    if (axis == 0) {
      add({0, 1});
    } else {
      for_each_kept_row(layout_->axis(AxisSlot{axis}).parent, [&](int64_t s) { add(kept_segment(axis, s)); });
    }
    known.first_range = first;
    known.end_range = static_cast<int64_t>(ranges_.size());
  }

  bool place_sections() {
    bytes_ = BlobTables(*layout_).end;
    for (int axis = 0; axis < static_cast<int>(axes_.size()); ++axis) {
      if (!layout_->has_offsets(AxisSlot{axis})) continue;
      axis_rows(axis).section = bytes_;
      bytes_ += align_8(4 * (axis_rows(layout_->axis(AxisSlot{axis}).parent).kept + 1));
    }
    for (InputValues& input : inputs_) {
      if (input.begin < 0) continue;
      input.section = bytes_;
      bytes_ += align_8(axis_rows(input.axis).kept * input.row_bytes);
    }
    return bytes_ <= max_blob_bytes ||
           fail(StatusCode::too_large, {"the request"}, "a blob below 2^32 bytes", std::to_string(bytes_) + " bytes");
  }

  void write_offsets(int axis, std::byte* blob) const {
    auto* const begin = reinterpret_cast<uint32_t*>(blob + axis_rows(axis).section);
    uint32_t* end = begin;
    *end++ = 0;
    for_each_kept_row(layout_->axis(AxisSlot{axis}).parent, [&](int64_t s) {
      const Range kept = kept_segment(axis, s);
      *end = end[-1] + static_cast<uint32_t>(kept.end - kept.begin);
      ++end;
    });
    if ((end - begin) % 2 != 0) *end = 0;
  }

  void write_values(const InputValues& input, std::byte* blob) const {
    std::byte* end = blob + input.section;
    const AxisRows& rows = axis_rows(input.axis);
    for (int64_t r = rows.first_range; r < rows.end_range; ++r) {
      const Range range = ranges_[static_cast<size_t>(r)];
      const int64_t bytes = (range.end - range.begin) * input.row_bytes;
      std::memcpy(end, values_.data() + input.begin + range.begin * input.row_bytes, static_cast<size_t>(bytes));
      end += bytes;
    }
    std::memset(end, 0, static_cast<size_t>(align_8(end - blob) - (end - blob)));
  }

  const BatchLayout* layout_ = nullptr;
  Status status_;
  std::vector<AxisRows> axes_;
  std::vector<InputValues> inputs_;
  std::vector<std::byte> values_;  // of all inputs, as set
  std::vector<uint32_t> offsets_;  // of all axes that were divided
  std::vector<Range> ranges_;      // of all axes
  int64_t bytes_ = 0;
};

}}}  // namespace warprank::v0::detail

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/batch/detail/staging_definitions.hpp"
#endif
