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
#include "warprank/batch/format.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/status.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// Copies sections, of layouts with the same axes: those of an input from the first part that has one of its name, the
/// rows and offsets of an axis from the part that `part_of_axis` names. Leaf axes on which the new layout has no input
/// get no rows. Immutable, so any threads may use it at once.
class BlobJoin {
 public:
  /// Layouts outlive it. An input of one name has the same width and type in all. Throws invalid_argument if no part
  /// has an input of `to`.
  BlobJoin(const BatchLayout& to, std::vector<const BatchLayout*> parts, std::vector<int> part_of_axis)
      : to_(to), parts_(std::move(parts)), part_of_axis_(std::move(part_of_axis)), has_inputs_(to.axes().size()) {
    for (const IdsInfo& info : to.ids()) find(to_ids_, info, [](const BatchLayout& part) { return &part.ids(); });
    for (const DenseInfo& info : to.dense())
      find(to_dense_, info, [](const BatchLayout& part) { return &part.dense(); });
    for (size_t a = has_inputs_.size(); a-- > 1;)
      if (has_inputs_[a]) has_inputs_[static_cast<size_t>(to.axes()[a].parent)] = true;
  }

  /// Fills `blob` from the blobs of the parts. The status tells if these do not fit together: they then have different
  /// numbers of rows on an axis that divides another's.
  Status run(const std::vector<BlobView>& parts, std::vector<std::byte>& blob) const {
    const BlobTables tables(to_);
    blob.assign(static_cast<size_t>(tables.end), std::byte{0});
    std::vector<int64_t> rows;
    for (size_t a = 0; a < to_.axes().size(); ++a) {
      const AxisSlot axis{static_cast<int>(a)};
      const BlobView& part = parts[static_cast<size_t>(part_of_axis_[a])];
      rows.push_back(has_inputs_[a] || a == 0 ? part.rows(axis) : 0);
      put(blob, tables.rows_at + 4 * static_cast<int64_t>(a), rows[a]);
      if (!to_.has_offsets(axis)) continue;
      const auto parent = to_.axis(axis).parent;
      const int64_t bytes = 4 * (rows[static_cast<size_t>(parent)] + 1);
      std::byte* const to = begin_section(blob, tables.offsets_at + 4 * static_cast<int64_t>(a), bytes);
      if (rows[a] == 0) continue;
      if (part.rows({parent}) != rows[static_cast<size_t>(parent)])
        return {StatusCode::inconsistent,
                Problem{"blob", "rows of axis '" + to_.axis(AxisSlot{parent}).name + "'",
                        std::to_string(rows[static_cast<size_t>(parent)]), std::to_string(part.rows({parent}))}
                    .to_string()};
      std::memcpy(to, part.offsets(axis).data(), static_cast<size_t>(bytes));
    }
    int64_t at = tables.data_at;
    for (size_t i = 0; i < to_ids_.size(); ++i, at += 4) {
      const IdsInfo& info = to_.ids()[i];
      copy(blob, at, parts[to_ids_[i].part].values(IdsSlot{to_ids_[i].index}),
           rows[static_cast<size_t>(info.axis)] * size_of(info.wire));
    }
    for (size_t i = 0; i < to_dense_.size(); ++i, at += 4) {
      const DenseInfo& info = to_.dense()[i];
      copy(blob, at, parts[to_dense_[i].part].values(DenseSlot{to_dense_[i].index}),
           rows[static_cast<size_t>(info.axis)] * info.width * size_of(info.wire));
    }
    return finish(blob, tables);
  }

 private:
  struct Source {
    size_t part;
    int index;
  };

  template <class Info, class Inputs>
  void find(std::vector<Source>& sources, const Info& info, Inputs inputs_of) {
    has_inputs_[static_cast<size_t>(info.axis)] = true;
    for (size_t p = 0; p < parts_.size(); ++p) {
      const std::vector<Info>& inputs = *inputs_of(*parts_[p]);
      for (size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i].name == info.name) return sources.push_back({p, static_cast<int>(i)});
    }
    throw invalid_argument("input '" + info.name + "'", "to be in a layout that is joined", "in none");
  }

  static void put(std::vector<std::byte>& blob, int64_t at, int64_t value) {
    const auto number = static_cast<uint32_t>(value);
    std::memcpy(blob.data() + at, &number, sizeof number);
  }
  static std::byte* begin_section(std::vector<std::byte>& blob, int64_t entry_at, int64_t bytes) {
    const auto begin = static_cast<int64_t>(blob.size());
    put(blob, entry_at, begin);
    blob.resize(static_cast<size_t>(begin + align_8(bytes)));
    return blob.data() + begin;
  }
  static void copy(std::vector<std::byte>& blob, int64_t entry_at, const std::byte* values, int64_t bytes) {
    if (values == nullptr) return;
    std::byte* const to = begin_section(blob, entry_at, bytes);
    if (bytes > 0) std::memcpy(to, values, static_cast<size_t>(bytes));
  }
  Status finish(std::vector<std::byte>& blob, const BlobTables& tables) const {
    const auto size = static_cast<int64_t>(blob.size());
    if (size > max_blob_bytes)
      return {StatusCode::too_large,
              Problem{"blob", "size", "fewer than 2^32 bytes", std::to_string(size)}.to_string()};
    write_header(to_, size, blob.data());
    if (tables.values_end > tables.types_at) write_types(to_, blob.data() + tables.types_at);
    return {};
  }

  const BatchLayout& to_;
  std::vector<const BatchLayout*> parts_;
  std::vector<int> part_of_axis_;
  std::vector<bool> has_inputs_;  // on an axis, or on one nested in it
  std::vector<Source> to_ids_, to_dense_;
};

}}}  // namespace warprank::v0::detail
