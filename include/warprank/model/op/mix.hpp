// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tuple>

#include "warprank/core/fields.hpp"
#include "warprank/model/op/traits.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// y = sum_e normalization(gate)_e x_e [* multiply] [+ residual]. Inputs in this order, if present: experts [E * D]
/// (ancestor), gate logits [E] (ancestor), multiply [D], residual [D]. Planning makes the last two.
struct MixOp {
  static constexpr const char* kind = "mix";
  Normalization normalization = Normalization::softmax;
  bool multiply = false;
  bool residual = false;
};
constexpr auto fields_of(const MixOp*) {
  return std::make_tuple(field("normalization", &MixOp::normalization), optional_field("multiply", &MixOp::multiply),
                         optional_field("residual", &MixOp::residual));
}

template <>
struct OpTraits<MixOp> : NoParameters, ReadsHalves {
  static constexpr StepKind step = StepKind::mix;
  static constexpr Across across = Across::row_by_row;
  static constexpr bool reads_ancestors = true;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const MixOp& op, Shapes& node) {
    if ((op.multiply || op.residual) && !node.is_planned())
      return node.fail("a mix of the model language", "one with a factor or a residual, which planning adds");
    const size_t expected = 2u + op.multiply + op.residual;
    if (!node.count_is(expected, expected)) return {};
    const auto &experts = node.input(0), &gate = node.input(1);
    const auto axis = node.common_axis(true);
    if (!axis) return {};
    if (gate.width < 1 || experts.width % gate.width != 0)
      return node.fail("a gate with one logit per expert", node.show(gate) + " for " + node.show(experts));
    const int64_t width = experts.width / gate.width;
    for (size_t i = 2; i < expected; ++i)
      if (node.input(i).axis != *axis || node.input(i).width != width)
        return node.fail("[" + node.axis_name(*axis) + ", " + std::to_string(width) + "] to multiply with or add",
                         node.show(node.input(i)));
    return NodeShape{*axis, width};
  }
  template <class Model>
  static Cost cost(const MixOp& op, const Model& node) {
    return {node.rows() * (static_cast<double>(node.input(0).width) * 2 + node.width() * (op.multiply + op.residual)),
            node.traffic()};
  }
};

}}  // namespace warprank::v0
