// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tuple>

#include "warprank/core/fields.hpp"
#include "warprank/model/op/traits.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// The columns of a row pooled to one.
struct ReduceOp {
  static constexpr const char* kind = "reduce";
  Pooling pooling = Pooling::sum;
};
constexpr auto fields_of(const ReduceOp*) { return std::make_tuple(field("pooling", &ReduceOp::pooling)); }

/// Late broadcast divides a sum into the sums of each axis.
template <>
struct OpTraits<ReduceOp> : NoParameters, ReadsFloats {
  static constexpr StepKind step = StepKind::rows;
  static constexpr Across across = Across::row_by_row;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const ReduceOp& op, Shapes& node) {
    if (!node.count_is(1, 1)) return {};
    if (op.pooling == Pooling::none) return node.fail("sum, mean, sqrtn or max", "none");
    return NodeShape{node.input(0).axis, 1};
  }
  template <class Model>
  static Cost cost(const ReduceOp&, const Model& node) {
    return {node.input_elements(), node.traffic()};
  }
};

}}  // namespace warprank::v0
