// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "warprank/core/fields.hpp"
#include "warprank/model/dot_pairs.hpp"
#include "warprank/model/op/traits.hpp"
#include "warprank/model/types.hpp"

namespace warprank { inline namespace v0 {

/// Dot products of all pairs of fields (Naumov et al. 2019, DLRM), or with `num_left` those of each of the first
/// `num_left` fields with each other one, row-major (Wukong, Zhang et al. 2024). Inputs (ancestor): fields of `dim`
/// columns each.
struct DotOp {
  static constexpr const char* kind = "dot";
  int64_t dim = 0;
  DotOrder order = DotOrder::lower;
  bool self = false;     ///< also each field with itself
  int64_t num_left = 0;  ///< 0: all pairs
  constexpr DotPairs pairs() const { return {order, self, num_left}; }
};
constexpr auto fields_of(const DotOp*) {
  return std::make_tuple(field("dim", &DotOp::dim), field("order", &DotOp::order), field("self", &DotOp::self),
                         optional_field("num_left", &DotOp::num_left));
}

template <>
struct OpTraits<DotOp> : NoParameters, ReadsHalves {
  static constexpr StepKind step = StepKind::alone;
  static constexpr Across across = Across::row_by_row;
  static constexpr bool reads_ancestors = true;
  static constexpr Fields fields = Fields::in_order;

  template <class Shapes>
  static std::optional<NodeShape> infer(const DotOp& op, Shapes& node) {
    int64_t num_fields = 0;
    std::optional<NodeShape> shape = node.of_fields(op.dim, num_fields);
    if (!shape) return shape;
    if (op.num_left != 0 && (op.num_left < 0 || op.num_left >= num_fields))
      return node.fail("fields on both sides",
                       std::to_string(op.num_left) + " of " + std::to_string(num_fields) + " on the left");
    shape->width = num_dot_pairs(num_fields, op.pairs());
    if (shape->width == 0) return node.fail("two fields or more", std::to_string(num_fields));
    return shape;
  }
  template <class Model>
  static Cost cost(const DotOp& op, const Model& node) {
    return {node.elements() * 2 * static_cast<double>(op.dim), node.traffic()};
  }
};

}}  // namespace warprank::v0
