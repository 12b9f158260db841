// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "warprank/model/op/traits.hpp"

namespace warprank { inline namespace v0 {

/// Row s of the input (on an ancestor axis) repeated for every row of segment s.
struct ExpandOp {
  static constexpr const char* kind = "expand";
};
constexpr auto fields_of(const ExpandOp*) { return std::make_tuple(); }

/// Late broadcast moves expands themselves.
template <>
struct OpTraits<ExpandOp> : NoParameters, CostOfCopy, ReadsFloats {
  static constexpr StepKind step = StepKind::rows;
  static constexpr Across across = Across::its_own;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const ExpandOp&, Shapes& node) {
    if (!node.count_is(1, 1)) return {};
    const int axis = node.asked().axis;
    if (axis < 0 || axis >= static_cast<int>(node.graph().axes.size()))
      return node.fail("an axis of the graph", "index " + std::to_string(axis));
    if (!node.graph().is_ancestor(node.input(0).axis, axis))
      return node.fail("an axis nested in '" + node.axis_name(node.input(0).axis) + "'",
                       "'" + node.axis_name(axis) + "'");
    return NodeShape{axis, node.input(0).width};
  }
};

}}  // namespace warprank::v0
