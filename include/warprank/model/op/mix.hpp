// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tuple>

#include "warprank/core/fields.hpp"
#include "warprank/model/op/traits.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// y = sum_e normalization(gate)_e x_e. Inputs (ancestor): experts [E * D], gate logits [E].
struct MixOp {
  static constexpr const char* kind = "mix";
  Normalization normalization = Normalization::softmax;
};
constexpr auto fields_of(const MixOp*) { return std::make_tuple(field("normalization", &MixOp::normalization)); }

template <>
struct OpTraits<MixOp> : NoParameters, ReadsHalves {
  static constexpr StepKind step = StepKind::mix;
  static constexpr Across across = Across::row_by_row;
  static constexpr bool reads_ancestors = true;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const MixOp&, Shapes& node) {
    if (!node.count_is(2, 2)) return {};
    const auto &experts = node.input(0), &gate = node.input(1);
    const auto axis = node.common_axis(true);
    if (!axis) return {};
    if (gate.width < 1 || experts.width % gate.width != 0)
      return node.fail("a gate with one logit per expert", node.show(gate) + " for " + node.show(experts));
    return NodeShape{*axis, experts.width / gate.width};
  }
  template <class Model>
  static Cost cost(const MixOp&, const Model& node) {
    return {node.rows() * static_cast<double>(node.input(0).width) * 2, node.traffic()};
  }
};

}}  // namespace warprank::v0
