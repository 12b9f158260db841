// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of batch/detail/staging.hpp.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "warprank/batch/detail/staging.hpp"
#include "warprank/batch/detail/wire_values.hpp"
#include "warprank/batch/format.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/batch/values.hpp"
#include "warprank/core/compiled.hpp"
#include "warprank/core/status.hpp"

namespace warprank { inline namespace v0 { namespace detail {

WARPRANK_HOST_INLINE void Staging::reset(const BatchLayout& layout) {
  layout_ = &layout;
  status_ = {};
  values_.clear();
  offsets_.clear();
  axes_.assign(layout.axes().size(), AxisRows{});
  inputs_.assign(layout.ids().size() + layout.dense().size(), InputValues{});
  axes_[0].rows = 1;
  axes_[0].source = {"every request"};
}

WARPRANK_HOST_INLINE void Staging::set_ids(IdsSlot slot, const Values<int64_t>& values) {
  check_slot("ids", slot.index, layout_->ids().size());
  if (!status_.ok()) return;
  const IdsInfo& info = layout_->ids(slot);
  const Part part{"ids", &info.name};
  int64_t bad = -1;
  store(slot.index, part, info.axis, values.size(), size_of(info.wire),
        [&] { bad = append(values.bytes(), IdsWire::i64, values.size(), info.wire, info.out_of_range, convert_ids); });
  if (bad >= 0 && status_.ok())
    fail(StatusCode::out_of_range, part, expected_text(info.wire),
         std::to_string(values[bad]) + " in row " + std::to_string(bad));
}

WARPRANK_HOST_INLINE void Staging::set_dense(DenseSlot slot, const Values<float>& values) {
  check_slot("dense", slot.index, layout_->dense().size());
  if (!status_.ok()) return;
  const DenseInfo& info = layout_->dense(slot);
  const Part part{"dense", &info.name};
  if (values.size() % info.width != 0) {
    fail(StatusCode::inconsistent, part, "a multiple of " + std::to_string(info.width) + " values",
         std::to_string(values.size()));
    return;
  }
  int64_t bad = find_not_finite(values.bytes(), values.size(), DenseWire::f32);
  if (bad >= 0) {
    fail(StatusCode::not_finite, part, "finite values", "NaN or infinity in " + place_text(bad, info.width));
    return;
  }
  store(static_cast<int64_t>(layout_->ids().size()) + slot.index, part, info.axis, values.size() / info.width,
        size_of(info.wire) * info.width, [&] {
          bad = append(values.bytes(), DenseWire::f32, values.size(), info.wire, info.out_of_range, convert_dense);
        });
  if (bad >= 0 && status_.ok())
    fail(StatusCode::out_of_range, part, expected_text(info.wire),
         std::to_string(values[bad]) + " in " + place_text(bad, info.width));
}

WARPRANK_HOST_INLINE void Staging::set_lengths(AxisSlot slot, const Lengths& lengths) {
  check_slot("axis", slot.index, layout_->axes().size());
  if (!status_.ok()) return;
  const Part part{"lengths of axis", &layout_->axis(slot).name};
  const auto first = static_cast<int64_t>(offsets_.size());
  offsets_.push_back(0);
  for (int64_t i = 0; i < lengths.size(); ++i)
    if (!push_segment(part, lengths[i])) return;
  divide(slot.index, part, first);
}

WARPRANK_HOST_INLINE void Staging::set_offsets(AxisSlot slot, const Offsets& offsets) {
  check_slot("axis", slot.index, layout_->axes().size());
  if (!status_.ok()) return;
  const Part part{"offsets of axis", &layout_->axis(slot).name};
  if (offsets.size() == 0 || offsets[0] != 0) {
    fail(StatusCode::inconsistent, part, "the first to be 0",
         offsets.size() == 0 ? "no offsets" : std::to_string(offsets[0]));
    return;
  }
  const auto first = static_cast<int64_t>(offsets_.size());
  offsets_.push_back(0);
  for (int64_t i = 1; i < offsets.size(); ++i) {
    const int64_t before = offsets_.back();
    if (!push_segment(part, offsets[i] < before ? -1 : offsets[i] - before)) return;
  }
  divide(slot.index, part, first);
}

WARPRANK_HOST_INLINE bool Staging::seal() {
  if (!status_.ok() || !complete_axes() || !check_missing() || !check_backing()) return false;
  ranges_.clear();
  for (int axis = 0; axis < static_cast<int>(axes_.size()); ++axis) choose_rows(axis);
  return place_sections();
}

WARPRANK_HOST_INLINE void Staging::write(std::byte* blob) const {
  const BlobTables tables(*layout_);
  write_header(*layout_, bytes_, blob);
  std::memset(blob + sizeof(BlobHeader), 0, static_cast<size_t>(tables.end) - sizeof(BlobHeader));

  auto* const rows = reinterpret_cast<uint32_t*>(blob + tables.rows_at);
  auto* const offsets_at = reinterpret_cast<uint32_t*>(blob + tables.offsets_at);
  auto* const data_at = reinterpret_cast<uint32_t*>(blob + tables.data_at);
  for (size_t i = 0; i < axes_.size(); ++i) {
    rows[i] = static_cast<uint32_t>(axes_[i].kept);
    offsets_at[i] = static_cast<uint32_t>(axes_[i].section);
    if (axes_[i].section != 0) write_offsets(static_cast<int>(i), blob);
  }
  if (tables.values_end > tables.types_at) write_types(*layout_, blob + tables.types_at);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    data_at[i] = static_cast<uint32_t>(inputs_[i].section);
    if (inputs_[i].section != 0) write_values(inputs_[i], blob);
  }
}

}}}  // namespace warprank::v0::detail
