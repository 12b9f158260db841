// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of batch/layout.hpp.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "warprank/batch/detail/fnv1a.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/core/compiled.hpp"
#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/suggest.hpp"
#include "warprank/model/graph.hpp"

namespace warprank { inline namespace v0 {

WARPRANK_HOST_INLINE BatchLayout::BatchLayout(const Graph& graph)
    : axes_(graph.axes), ids_(graph.ids), dense_(graph.dense) {
  Problems problems;
  check_axes(problems);
  check_inputs(problems);
  problems.throw_if_any();
  has_narrow_inputs_ =
      std::any_of(ids_.begin(), ids_.end(), [](const IdsInfo& info) { return info.wire != IdsWire::i64; }) ||
      std::any_of(dense_.begin(), dense_.end(), [](const DenseInfo& info) { return info.wire != DenseWire::f32; });
  make_fingerprints();
}

WARPRANK_HOST_INLINE AxisSlot BatchLayout::axis(const std::string& name) const {
  const auto it = axis_names_.find(name);
  if (it == axis_names_.end()) raise(unknown("axis", "an axis of the model", name, axis_names_));
  return {it->second};
}

WARPRANK_HOST_INLINE BatchLayout BatchLayout::wide() const {
  BatchLayout layout = *this;
  for (IdsInfo& info : layout.ids_) info.wire = IdsWire::i64;
  for (DenseInfo& info : layout.dense_) info.wire = DenseWire::f32;
  layout.has_narrow_inputs_ = false;
  layout.batch_fingerprint_ = fingerprint_;
  return layout;
}

WARPRANK_HOST_INLINE invalid_argument BatchLayout::unknown(const char* what, const char* expected,
                                                           const std::string& name, const Names& known) {
  std::vector<std::string> candidates;
  for (const auto& entry : known) candidates.push_back(entry.first);
  return invalid_argument(std::string(what) + " '" + name + "'", expected, unknown_name(name, candidates));
}

WARPRANK_HOST_INLINE int BatchLayout::find_input(const std::string& name, bool as_ids) const {
  const char* what = as_ids ? "ids" : "dense";
  const auto it = input_names_.find(name);
  if (it == input_names_.end()) raise(unknown(what, "an input of the model", name, input_names_));
  const int num_ids = static_cast<int>(ids_.size());
  const bool is_ids = it->second < num_ids;
  if (is_ids != as_ids)
    raise(invalid_argument(std::string(what) + " '" + name + "'", as_ids ? "an ids input" : "a dense input",
                           is_ids ? "an ids input" : "a dense input"));
  return is_ids ? it->second : it->second - num_ids;
}

WARPRANK_HOST_INLINE void BatchLayout::check_axes(Problems& problems) {
  if (axes_.empty()) problems.add("axes", "an outermost axis", "none");
  for (size_t i = 0; i < axes_.size(); ++i) {
    const AxisInfo& axis = axes_[i];
    const std::string what = "axis '" + axis.name + "'";
    const int index = static_cast<int>(i);
    if (!axis_names_.emplace(axis.name, index).second) problems.add(what, "a name not used before", "a second one");
    const bool parent_fits = i == 0 ? axis.parent == -1 : axis.parent >= 0 && axis.parent < index;
    if (!parent_fits)
      problems.add(what, i == 0 ? "no parent" : "a parent that comes before it",
                   "parent " + std::to_string(axis.parent));
    if (axis.keep_last < 0) problems.add(what, "keep_last of 0 or more", std::to_string(axis.keep_last));
  }
}

WARPRANK_HOST_INLINE void BatchLayout::check_input(Problems& problems, const std::string& what, const std::string& name,
                                                   int axis) {
  if (!input_names_.emplace(name, static_cast<int>(input_names_.size())).second)
    problems.add(what, "a name not used before", "a second one");
  if (axis < 0 || axis >= static_cast<int>(axes_.size()))
    problems.add(what, "an axis of the model", "axis " + std::to_string(axis));
}

WARPRANK_HOST_INLINE void BatchLayout::check_inputs(Problems& problems) {
  for (const IdsInfo& input : ids_) check_input(problems, "ids '" + input.name + "'", input.name, input.axis);
  for (const DenseInfo& input : dense_) {
    const std::string what = "dense '" + input.name + "'";
    check_input(problems, what, input.name, input.axis);
    if (input.width < 1 || input.width > max_dense_width)
      problems.add(what, "1 to " + std::to_string(max_dense_width) + " columns", std::to_string(input.width));
    if (input.default_value && !std::isfinite(*input.default_value))
      problems.add(what, "a finite default", std::to_string(*input.default_value));
  }
}

WARPRANK_HOST_INLINE void BatchLayout::make_fingerprints() {
  detail::Fnv1a hash;
  hash.add_32(1);  // the version that blobs had when fingerprints began
  hash.add_32(static_cast<uint32_t>(axes_.size()));
  hash.add_32(static_cast<uint32_t>(ids_.size()));
  hash.add_32(static_cast<uint32_t>(dense_.size()));
  for (const AxisInfo& axis : axes_) {
    hash.add_text(axis.name);
    hash.add_32(static_cast<uint32_t>(axis.parent));
    hash.add_64(static_cast<uint64_t>(axis.keep_last));
  }
  for (const IdsInfo& input : ids_) {
    hash.add_text(input.name);
    hash.add_32(static_cast<uint32_t>(input.axis));
    hash.add_byte(input.default_id ? 1 : 0);
    hash.add_64(static_cast<uint64_t>(input.default_id.value_or(0)));
  }
  for (const DenseInfo& input : dense_) {
    hash.add_text(input.name);
    hash.add_32(static_cast<uint32_t>(input.axis));
    hash.add_64(static_cast<uint64_t>(input.width));
    hash.add_byte(input.default_value ? 1 : 0);
    hash.add_32(float_bits(input.default_value.value_or(0)));
  }
  fingerprint_ = hash.hash();
  if (has_narrow_inputs()) {
    for (const IdsInfo& input : ids_) hash.add_byte(static_cast<uint8_t>(input.wire));
    for (const DenseInfo& input : dense_) hash.add_byte(static_cast<uint8_t>(input.wire));
  }
  batch_fingerprint_ = hash.hash();
}

}}  // namespace warprank::v0
