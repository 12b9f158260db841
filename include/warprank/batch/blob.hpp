// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reading one request in place.

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "warprank/batch/detail/wire_values.hpp"
#include "warprank/batch/format.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

/// A view of a blob that was packed by a Request or passed validate_blob. Every access is O(1) and unchecked; bytes and
/// layout must outlive the view.
class BlobView {
 public:
  /// `blob` is aligned to 8 bytes.
  BlobView(const std::byte* blob, const BatchLayout& layout)
      : blob_(blob),
        layout_(&layout),
        tables_(layout, reinterpret_cast<const BlobHeader*>(blob)->version),
        has_types_(tables_.values_end > tables_.types_at) {
    assert(reinterpret_cast<uintptr_t>(blob) % 8 == 0);
  }

  /// Another blob of the same batch.
  BlobView moved_to(const std::byte* blob) const {
    BlobView view = *this;
    view.blob_ = blob;
    return view;
  }

  int64_t bytes() const { return *at<uint32_t>(offsetof(BlobHeader, bytes)); }
  const std::byte* data() const { return blob_; }
  /// BatchLayout::fingerprint of the blob's layout.
  uint64_t fingerprint() const { return *at<uint64_t>(offsetof(BlobHeader, fingerprint)); }

  int64_t rows(AxisSlot axis) const { return at<uint32_t>(tables_.rows_at)[axis.index]; }

  /// [parent rows + 1]: row s of the parent has rows [offsets[s], offsets[s + 1]). Empty when the layout has no offsets
  /// for the axis: then the one parent row has all rows.
  Span<const uint32_t> offsets(AxisSlot axis) const {
    if (!layout_->has_offsets(axis)) return {};
    return {at<uint32_t>(at<uint32_t>(tables_.offsets_at)[axis.index]), rows({layout_->axis(axis).parent}) + 1};
  }

  /// Whether the request set the input; if not, its axis has no rows or the declared default applies to every row.
  bool has(IdsSlot input) const { return position(input) != 0; }
  bool has(DenseSlot input) const { return position(input) != 0; }

  /// The values of an input, of any type; null when not set.
  const std::byte* values(IdsSlot input) const { return has(input) ? blob_ + position(input) : nullptr; }
  const std::byte* values(DenseSlot input) const { return has(input) ? blob_ + position(input) : nullptr; }

  /// The type of an input in the blob: the layout's, in a batch.
  IdsWire type(IdsSlot input) const { return static_cast<IdsWire>(type_of(input.index)); }
  DenseWire type(DenseSlot input) const { return static_cast<DenseWire>(type_of(number_of(input))); }

  /// [rows], of an input of 64 bits; empty when not set.
  Span<const int64_t> ids(IdsSlot input) const {
    if (!has(input)) return {};
    assert(type(input) == IdsWire::i64);
    return {at<int64_t>(position(input)), rows({layout_->ids(input).axis})};
  }
  /// [rows * width], row-major, of an input of FP32; empty when not set.
  Span<const float> dense(DenseSlot input) const {
    if (!has(input)) return {};
    assert(type(input) == DenseWire::f32);
    const DenseInfo& info = layout_->dense(input);
    return {at<float>(position(input)), rows({info.axis}) * info.width};
  }

  /// The same of an input of FP16.
  Span<const float16> dense_halves(DenseSlot input) const {
    if (!has(input)) return {};
    assert(type(input) == DenseWire::f16);
    const DenseInfo& info = layout_->dense(input);
    return {at<float16>(position(input)), rows({info.axis}) * info.width};
  }

  /// Copies the ids of all rows, or `count` values of a dense input from its value `begin` on, of any type. The input
  /// must be set.
  void copy_ids(IdsSlot input, int64_t* to) const {
    detail::convert_ids(blob_ + position(input), type(input), rows({layout_->ids(input).axis}),
                        reinterpret_cast<std::byte*>(to), IdsWire::i64, OutOfRange::refuse);
  }
  void copy_dense(DenseSlot input, int64_t begin, int64_t count, float* to) const {
    detail::convert_dense(blob_ + position(input) + begin * size_of(type(input)), type(input), count,
                          reinterpret_cast<std::byte*>(to), DenseWire::f32, OutOfRange::refuse);
  }

 private:
  template <class Value>
  const Value* at(int64_t position) const {
    return reinterpret_cast<const Value*>(blob_ + position);
  }
  int64_t number_of(DenseSlot input) const { return static_cast<int64_t>(layout_->ids().size()) + input.index; }
  uint32_t position(IdsSlot input) const { return at<uint32_t>(tables_.data_at)[input.index]; }
  uint32_t position(DenseSlot input) const { return at<uint32_t>(tables_.data_at)[number_of(input)]; }
  uint8_t type_of(int64_t number) const { return has_types_ ? at<uint8_t>(tables_.types_at)[number] : 0; }

  const std::byte* blob_;
  const BatchLayout* layout_;
  detail::BlobTables tables_;
  bool has_types_;
};

}}  // namespace warprank::v0
