// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tuple>

#include "warprank/core/fields.hpp"
#include "warprank/model/op/traits.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// The rows of a nested axis pooled onto its parent; zeros where there are none.
struct PoolOp {
  static constexpr const char* kind = "pool";
  Pooling pooling = Pooling::sum;
};
constexpr auto fields_of(const PoolOp*) { return std::make_tuple(field("pooling", &PoolOp::pooling)); }

template <>
struct OpTraits<PoolOp> : NoParameters, ReadsFloats {
  static constexpr StepKind step = StepKind::pool;
  static constexpr Across across = Across::its_own;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const PoolOp& op, Shapes& node) {
    if (!node.count_is(1, 1)) return {};
    if (op.pooling == Pooling::none) return node.fail("sum, mean, sqrtn or max", "none");
    const int parent = node.graph().axis(node.input(0).axis).parent;
    if (parent == -1) return node.fail("a tensor on a nested axis", node.show(node.input(0)));
    return NodeShape{parent, node.input(0).width};
  }
  template <class Model>
  static Cost cost(const PoolOp&, const Model& node) {
    return {node.input_elements(), node.traffic()};
  }
};

}}  // namespace warprank::v0
