// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which rows of columns a request has.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "warprank/batch/detail/staging.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/batch/request_columns.hpp"
#include "warprank/core/error.hpp"

namespace warprank { inline namespace v0 { namespace detail {

struct RowRange {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
};

/// Columns whose rows agree.
class ColumnRows {
 public:
  /// The layout outlives it, and the columns do. Throws what Batch::add_requests throws.
  ColumnRows(const BatchLayout& layout, int64_t count, const RequestColumns& columns)
      : layout_(layout), totals_(layout.axes().size()), offsets_(layout.axes().size()) {
    totals_[0] = count;
    Problems problems;
    if (count < 0) problems.add("number of requests", "0 or more", std::to_string(count));
    check_slots(columns);
    take_offsets(columns, problems);
    problems.throw_if_any();  // what follows would be about rows that are not known
    check_inputs(columns, problems);
    problems.throw_if_any();
  }

  const BatchLayout& layout() const { return layout_; }
  int64_t num_requests() const { return totals_[0]; }
  /// In all requests.
  int64_t rows(int axis) const { return totals_[static_cast<size_t>(axis)]; }
  /// [rows of the parent in all requests + 1]; empty: the axis has no rows.
  const Offsets& offsets(int axis) const { return offsets_[static_cast<size_t>(axis)]; }

  /// What is wrong with offsets into the rows of a parent; empty: nothing.
  static std::string misfit(const Offsets& offsets, int64_t parents) {
    if (offsets.size() - 1 != parents) return std::to_string(offsets.size());
    if (offsets[0] < 0) return "a first one of " + std::to_string(offsets[0]);
    for (int64_t i = 0; i < parents; ++i)
      if (offsets[i] > offsets[i + 1])
        return std::to_string(offsets[i + 1]) + " behind " + std::to_string(offsets[i]) + " at place " +
               std::to_string(i + 1);
    return {};
  }

  /// By axis the rows of request r, numbered from the first of the columns.
  void find(int64_t r, std::vector<RowRange>& by_axis) const {
    find(r, by_axis, [](size_t, RowRange all) { return all; });
  }
  /// Those that keep_last leaves, of axes without offsets in blobs, and all that are nested in them.
  void find_kept(int64_t r, std::vector<RowRange>& by_axis) const {
    find(r, by_axis, [&](size_t axis, RowRange all) {
      const int64_t most = layout_.axes()[axis].keep_last;
      return RowRange{most == 0 ? all.begin : std::max(all.begin, all.end - most), all.end};
    });
  }

 private:
  template <class Keep>
  void find(int64_t r, std::vector<RowRange>& by_axis, Keep&& keep) const {
    by_axis.resize(offsets_.size());
    by_axis[0] = {r, r + 1};
    for (size_t a = 1; a < offsets_.size(); ++a) {
      by_axis[a] = {};
      const Offsets& offsets = offsets_[a];
      if (offsets.size() == 0) continue;
      const RowRange parent = by_axis[static_cast<size_t>(layout_.axes()[a].parent)];
      by_axis[a] = keep(a, RowRange{offsets[parent.begin] - offsets[0], offsets[parent.end] - offsets[0]});
    }
  }

  void check_slots(const RequestColumns& columns) const {
    for (const auto& [slot, values] : columns.ids) Staging::check_slot("ids", slot.index, layout_.ids().size());
    for (const auto& [slot, values] : columns.dense) Staging::check_slot("dense", slot.index, layout_.dense().size());
    for (const auto& [slot, values] : columns.offsets) Staging::check_slot("axis", slot.index, layout_.axes().size());
  }

  std::string name_of(int axis) const { return "axis '" + layout_.axis(AxisSlot{axis}).name + "'"; }

  /// A parent's before those of the axes nested in it.
  void take_offsets(const RequestColumns& columns, Problems& problems) {
    for (const auto& [slot, values] : columns.offsets) {
      const std::string what = "offsets of " + name_of(slot.index);
      if (slot.index == 0) {
        problems.add(what, "none: the outermost axis has one row for each request", "some");
      } else if (offsets(slot.index).size() > 0) {
        problems.add(what, "to be given once", "a second time");
      } else if (values.size() == 0) {
        problems.add(what, "those of each row of its parent, and their end", "none");
      } else {
        offsets_[static_cast<size_t>(slot.index)] = values;
      }
    }
    for (int axis = 1; axis < static_cast<int>(offsets_.size()); ++axis) {
      const Offsets& given = offsets(axis);
      if (given.size() == 0) continue;
      const int64_t parents = rows(layout_.axis(AxisSlot{axis}).parent);
      const std::string got = misfit(given, parents);
      if (got.empty())
        totals_[static_cast<size_t>(axis)] = given[parents] - given[0];
      else
        problems.add("offsets of " + name_of(axis), std::to_string(parents + 1) + " that never decrease", got);
    }
  }

  void check_inputs(const RequestColumns& columns, Problems& problems) const {
    std::vector<bool> is_told(offsets_.size());  // whether a Request is told the rows of an axis
    is_told[0] = true;
    for (int axis = 1; axis < static_cast<int>(offsets_.size()); ++axis)
      if (offsets(axis).size() > 0) is_told[static_cast<size_t>(layout_.axis(AxisSlot{axis}).parent)] = true;
    std::set<std::string> given;
    const auto check = [&](const std::string& what, int axis, int64_t width, int64_t got) {
      is_told[static_cast<size_t>(axis)] = true;
      if (!given.insert(what).second) problems.add(what, "to be given once", "a second time");
      if (axis > 0 && offsets(axis).size() == 0 && got > 0)
        problems.add(what, "offsets of " + name_of(axis) + ", whose rows it has", "none");
      else if (got % width != 0 || got / width != rows(axis))
        problems.add(what, std::to_string(rows(axis)) + " rows of " + std::to_string(width),
                     std::to_string(got) + " values");
    };
    for (const auto& [slot, values] : columns.ids) {
      const IdsInfo& info = layout_.ids(slot);
      check("ids '" + info.name + "'", info.axis, 1, values.size());
    }
    for (const auto& [slot, values] : columns.dense) {
      const DenseInfo& info = layout_.dense(slot);
      check("dense '" + info.name + "'", info.axis, info.width, values.size());
    }
    for (int axis = 1; axis < static_cast<int>(offsets_.size()); ++axis)
      if (rows(axis) > 0 && !is_told[static_cast<size_t>(axis)])
        problems.add(name_of(axis), "a column of one of its inputs, beside offsets", "none");
  }

  const BatchLayout& layout_;
  std::vector<int64_t> totals_;   // by axis
  std::vector<Offsets> offsets_;  // by axis
};

}}}  // namespace warprank::v0::detail
