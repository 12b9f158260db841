// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reading one request in place.

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "warprank/batch/format.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/core/view.hpp"

namespace warprank {

/// A view of a blob that was packed by a Request or passed validate_blob. Every access is O(1) and unchecked; bytes and
/// layout must outlive the view.
class BlobView {
 public:
  /// `blob` is aligned to 8 bytes.
  BlobView(const std::byte* blob, const BatchLayout& layout) : blob_(blob), layout_(&layout), tables_(layout) {
    assert(reinterpret_cast<uintptr_t>(blob) % 8 == 0);
  }

  int64_t bytes() const { return *at<uint32_t>(offsetof(BlobHeader, bytes)); }
  const std::byte* data() const { return blob_; }

  int64_t rows(AxisSlot axis) const { return at<uint32_t>(tables_.rows_at)[axis.index]; }

  /// [parent rows + 1]: row s of the parent has rows [offsets[s], offsets[s + 1]). Empty when the layout has no offsets
  /// for the axis: then the one parent row has them all.
  Span<const uint32_t> offsets(AxisSlot axis) const {
    if (!layout_->has_offsets(axis)) return {};
    return {at<uint32_t>(at<uint32_t>(tables_.offsets_at)[axis.index]), rows({layout_->axis(axis).parent}) + 1};
  }

  /// Whether the request set the input; if not, its axis has no rows or the declared default applies to every row.
  bool has(IdsSlot input) const { return position(input) != 0; }
  bool has(DenseSlot input) const { return position(input) != 0; }

  /// [rows]; empty when not set.
  Span<const int64_t> ids(IdsSlot input) const {
    if (!has(input)) return {};
    return {at<int64_t>(position(input)), rows({layout_->ids(input).axis})};
  }
  /// [rows * width], row-major; empty when not set.
  Span<const float> dense(DenseSlot input) const {
    if (!has(input)) return {};
    const DenseInfo& info = layout_->dense(input);
    return {at<float>(position(input)), rows({info.axis}) * info.width};
  }

 private:
  template <class Value>
  const Value* at(int64_t position) const {
    return reinterpret_cast<const Value*>(blob_ + position);
  }
  uint32_t position(IdsSlot input) const { return at<uint32_t>(tables_.data_at)[input.index]; }
  uint32_t position(DenseSlot input) const {
    return at<uint32_t>(tables_.data_at)[static_cast<int64_t>(layout_->ids().size()) + input.index];
  }

  const std::byte* blob_;
  const BatchLayout* layout_;
  detail::BlobTables tables_;
};

}  // namespace warprank
