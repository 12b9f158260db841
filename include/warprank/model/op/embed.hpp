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

/// Rows of a table by id. Pooling::none: one id per row, on the ids' axis; otherwise the ids' axis is pooled onto its
/// parent. Inputs: [weights: one column on the ids' axis].
struct EmbedOp {
  static constexpr const char* kind = "embed";
  int ids = 0;
  int table = 0;
  Pooling pooling = Pooling::none;
};
constexpr auto fields_of(const EmbedOp*) {
  return std::make_tuple(field("ids", &EmbedOp::ids), field("table", &EmbedOp::table),
                         field("pooling", &EmbedOp::pooling));
}

template <>
struct OpTraits<EmbedOp> : NoParameters, ReadsFloats {
  static constexpr StepKind step = StepKind::look_up;
  static constexpr Across across = Across::its_own;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const EmbedOp& op, Shapes& node) {
    const auto& graph = node.graph();
    if (!node.count_is(0, 1)) return {};
    if (op.ids < 0 || op.ids >= static_cast<int>(graph.ids.size()))
      return node.fail("an ids input of the graph", "index " + std::to_string(op.ids));
    if (op.table < 0 || op.table >= static_cast<int>(graph.tables.size()))
      return node.fail("a table of the graph", "index " + std::to_string(op.table));
    const auto& ids = graph.ids[static_cast<size_t>(op.ids)];
    const int64_t dim = graph.tables[static_cast<size_t>(op.table)].dim;
    if (op.pooling == Pooling::none) {
      if (node.num_inputs() != 0) return node.fail("weights only with a pooled look-up", node.show(node.input(0)));
      return NodeShape{ids.axis, dim};
    }
    if (node.num_inputs() == 1) {
      if (op.pooling == Pooling::max) return node.fail("no weights with max pooling", node.show(node.input(0)));
      if (node.input(0).axis != ids.axis || node.input(0).width != 1)
        return node.fail("weights of 1 column on axis '" + node.axis_name(ids.axis) + "'", node.show(node.input(0)));
    }
    const int parent = graph.axis(ids.axis).parent;
    if (parent == -1)
      return node.fail("ids on a nested axis, pooled onto its parent",
                       "'" + ids.name + "' on the outermost axis '" + node.axis_name(ids.axis) + "'");
    return NodeShape{parent, dim};
  }
  template <class Model>
  static Cost cost(const EmbedOp& op, const Model& node) {
    const auto& info = node.graph().ids[static_cast<size_t>(op.ids)];
    const double ids = node.rows(info.axis);
    const auto id_bytes = static_cast<double>(size_of(info.wire));
    return {op.pooling == Pooling::none ? 0 : ids * node.width(),
            ids * (id_bytes + node.width() * node.value_bytes) + node.elements() * node.value_bytes};
  }
};

}}  // namespace warprank::v0
