// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "warprank/core/fields.hpp"
#include "warprank/model/op/traits.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// A dense input: the rows of Graph::dense[input].
struct DenseOp {
  static constexpr const char* kind = "dense";
  int input = 0;
};
constexpr auto fields_of(const DenseOp*) { return std::make_tuple(field("input", &DenseOp::input)); }

template <>
struct OpTraits<DenseOp> : NoParameters, ReadsFloats {
  static constexpr StepKind step = StepKind::none;
  static constexpr Across across = Across::its_own;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const DenseOp& op, Shapes& node) {
    if (!node.count_is(0, 0)) return {};
    if (op.input < 0 || op.input >= static_cast<int>(node.graph().dense.size()))
      return node.fail("a dense input of the graph", "index " + std::to_string(op.input));
    const auto& info = node.graph().dense[static_cast<size_t>(op.input)];
    return NodeShape{info.axis, info.width};
  }
  template <class Model>
  static Cost cost(const DenseOp& op, const Model& node) {
    const auto sent_bytes = static_cast<double>(size_of(node.graph().dense[static_cast<size_t>(op.input)].wire));
    return {0, node.elements() * (sent_bytes + node.value_bytes)};
  }
};

}}  // namespace warprank::v0
