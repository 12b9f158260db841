// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A blob whose inputs come from blobs of other layouts.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "warprank/batch/blob.hpp"
#include "warprank/batch/detail/wire_values.hpp"
#include "warprank/batch/format.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/status.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// How blobs of a layout are made of others, of layouts with the same axes: the section of an input is copied from the
/// first part that has one of its name, and the rows and offsets of an axis come from the part that is named for it.
/// Dense inputs that are in no part are given as FP32. Leaf axes on which the new layout has no input get no rows.
/// Immutable, so any threads may use it at once.
class BlobJoin {
 public:
  /// What a new blob will be.
  struct Shape {
    std::vector<int64_t> rows;  ///< by axis
    int64_t bytes = 0;
    Status status = {};
  };

  /// Layouts outlive it. An input of one name has the same width and type in all.
  BlobJoin(const BatchLayout& to, std::vector<const BatchLayout*> parts, std::vector<int> part_of_axis)
      : to_(to), parts_(std::move(parts)), part_of_axis_(std::move(part_of_axis)), has_inputs_(to.axes().size()) {
    for (const IdsInfo& info : to.ids()) find(ids_, info, [](const BatchLayout& part) { return &part.ids(); });
    for (const DenseInfo& info : to.dense()) find(dense_, info, [](const BatchLayout& part) { return &part.dense(); });
    for (size_t a = has_inputs_.size(); a-- > 1;)
      if (has_inputs_[a]) has_inputs_[static_cast<size_t>(to.axes()[a].parent)] = true;
  }

  /// Of the blob that these parts make. The status tells if they do not fit together: they then have different numbers
  /// of rows on an axis that divides another's.
  Shape shape(const std::vector<BlobView>& parts) const {
    Shape shape;
    shape.bytes = BlobTables(to_).end;
    for (size_t a = 0; a < to_.axes().size(); ++a) {
      const AxisSlot axis{static_cast<int>(a)};
      const BlobView& part = parts[static_cast<size_t>(part_of_axis_[a])];
      shape.rows.push_back(has_inputs_[a] || a == 0 ? part.rows(axis) : 0);
      if (!to_.has_offsets(axis)) continue;
      const AxisSlot parent{to_.axis(axis).parent};
      const int64_t segments = shape.rows[static_cast<size_t>(parent.index)];
      shape.bytes += align_8(4 * (segments + 1));
      if (shape.rows[a] > 0 && part.rows(parent) != segments && shape.status.ok())
        shape.status = {StatusCode::inconsistent, Problem{"blob", "rows of axis '" + to_.axis(parent).name + "'",
                                                          std::to_string(segments), std::to_string(part.rows(parent))}
                                                      .to_string()};
    }
    for_each_input(parts, shape, [&](bool is_set, Values, int64_t bytes, const DenseInfo*) {
      if (is_set) shape.bytes += align_8(bytes);
    });
    if (shape.bytes > max_blob_bytes && shape.status.ok())
      shape.status = {StatusCode::too_large,
                      Problem{"blob", "size", "fewer than 2^32 bytes", std::to_string(shape.bytes)}.to_string()};
    return shape;
  }

  /// Copies an input from a part to its section, `at` bytes behind the beginning of the blob.
  struct Copy {
    void operator()(std::byte* blob, int64_t at, const std::byte* values, int64_t bytes, int /*part*/) const {
      std::memcpy(blob + at, values, static_cast<size_t>(bytes));
    }
  };
  /// Writes the blob of a shape whose status is ok. `given(info)` is the Span<const float> of an input in no part,
  /// `copy` a function like Copy.
  template <class Given, class CopyInput = Copy>
  void write(const std::vector<BlobView>& parts, const Shape& shape, std::byte* blob, Given&& given,
             CopyInput&& copy = {}) const {
    const BlobTables tables(to_);
    write_header(to_, shape.bytes, blob);
    std::memset(blob + sizeof(BlobHeader), 0, static_cast<size_t>(tables.end) - sizeof(BlobHeader));
    if (tables.values_end > tables.types_at) write_types(to_, blob + tables.types_at);
    std::byte* end = blob + tables.end;
    const auto begin_section = [&](int64_t entry_at, int64_t bytes) {
      put(blob + entry_at, end - blob);
      std::byte* const section = end;
      end += align_8(bytes);
      if (bytes > 0) std::memset(end - 8, 0, 8);
      return section;
    };
    for (size_t a = 0; a < to_.axes().size(); ++a) {
      const AxisSlot axis{static_cast<int>(a)};
      put(blob + tables.rows_at + 4 * static_cast<int64_t>(a), shape.rows[a]);
      if (!to_.has_offsets(axis)) continue;
      const int64_t bytes = 4 * (shape.rows[static_cast<size_t>(to_.axis(axis).parent)] + 1);
      std::byte* const section = begin_section(tables.offsets_at + 4 * static_cast<int64_t>(a), bytes);
      if (shape.rows[a] > 0)
        std::memcpy(section, parts[static_cast<size_t>(part_of_axis_[a])].offsets(axis).data(),
                    static_cast<size_t>(bytes));
      else
        std::memset(section, 0, static_cast<size_t>(bytes));
    }
    int64_t entry_at = tables.data_at;
    for_each_input(parts, shape, [&](bool is_set, Values values, int64_t bytes, const DenseInfo* info) {
      if (is_set) {
        std::byte* const section = begin_section(entry_at, bytes);
        if (values.data != nullptr && bytes > 0) {
          copy(blob, section - blob, values.data, bytes, values.part);
        } else if (bytes > 0) {
          const Span<const float> floats = given(*info);
          convert_dense(reinterpret_cast<const std::byte*>(floats.data()), DenseWire::f32, floats.size(), section,
                        info->wire, OutOfRange::saturate);
        }
      }
      entry_at += 4;
    });
  }

 private:
  struct Source {
    int part;  ///< -1: it is given
    int index;
  };
  struct Values {
    const std::byte* data;  ///< null: they are given, or not set
    int part;
  };

  template <class Info, class Inputs>
  void find(std::vector<Source>& sources, const Info& info, Inputs inputs_of) {
    has_inputs_[static_cast<size_t>(info.axis)] = true;
    for (size_t p = 0; p < parts_.size(); ++p) {
      const std::vector<Info>& inputs = *inputs_of(*parts_[p]);
      for (size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i].name == info.name) return sources.push_back({static_cast<int>(p), static_cast<int>(i)});
    }
    sources.push_back({-1, -1});
  }

  /// body(is_set, values, bytes, info): `info` is null for ids.
  template <class Body>
  void for_each_input(const std::vector<BlobView>& parts, const Shape& shape, Body&& body) const {
    for (size_t i = 0; i < ids_.size(); ++i) {
      const IdsInfo& info = to_.ids()[i];
      const std::byte* const values = parts[static_cast<size_t>(ids_[i].part)].values(IdsSlot{ids_[i].index});
      body(values != nullptr, Values{values, ids_[i].part},
           shape.rows[static_cast<size_t>(info.axis)] * size_of(info.wire), nullptr);
    }
    for (size_t i = 0; i < dense_.size(); ++i) {
      const DenseInfo& info = to_.dense()[i];
      const bool is_given = dense_[i].part < 0;
      const std::byte* const values =
          is_given ? nullptr : parts[static_cast<size_t>(dense_[i].part)].values(DenseSlot{dense_[i].index});
      body(is_given || values != nullptr, Values{values, dense_[i].part},
           shape.rows[static_cast<size_t>(info.axis)] * info.width * size_of(info.wire), &info);
    }
  }
  static void put(std::byte* to, int64_t value) {
    const auto number = static_cast<uint32_t>(value);
    std::memcpy(to, &number, sizeof number);
  }

  const BatchLayout& to_;
  std::vector<const BatchLayout*> parts_;
  std::vector<int> part_of_axis_;
  std::vector<bool> has_inputs_;  // on an axis, or on one nested in it
  std::vector<Source> ids_, dense_;
};

}}}  // namespace warprank::v0::detail
