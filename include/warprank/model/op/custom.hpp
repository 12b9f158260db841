// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <tuple>

#include "warprank/core/fields.hpp"
#include "warprank/model/op/traits.hpp"

namespace warprank { inline namespace v0 {

/// A user's own function, looked up by name at bind; the graph holds only its shape and settings.
struct CustomOp {
  static constexpr const char* kind = "custom";
  std::string function;
  std::string settings;  ///< passed to the function unchanged
};
constexpr auto fields_of(const CustomOp*) {
  return std::make_tuple(field("function", &CustomOp::function), field("settings", &CustomOp::settings));
}

template <>
struct OpTraits<CustomOp> : NoParameters, CostOfCopy, ReadsFloats {
  static constexpr StepKind step = StepKind::alone;
  static constexpr Across across = Across::its_own;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const CustomOp& op, Shapes& node) {
    if (op.function.empty()) return node.fail("the name of a function", "none");
    const auto [axis, width] = node.asked();
    if (axis < 0 || axis >= static_cast<int>(node.graph().axes.size()))
      return node.fail("an axis of the graph", "index " + std::to_string(axis));
    if (width < 1) return node.fail("1 or more output columns", std::to_string(width));
    for (size_t i = 0; i < node.num_inputs(); ++i)
      if (!node.graph().is_ancestor(node.input(i).axis, axis))
        return node.fail("inputs on axis '" + node.axis_name(axis) + "' or above", node.show(node.input(i)));
    return NodeShape{axis, width};
  }
};

}}  // namespace warprank::v0
