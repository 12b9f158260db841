// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "warprank/core/fields.hpp"
#include "warprank/model/op/traits.hpp"

namespace warprank { inline namespace v0 {

/// Factorisation machine, second order: 1/2 [(sum_f e_f)^2 - sum_f e_f^2], summed over the dim when `reduce`
/// (Rendle 2010), else left as a vector (bi-interaction). Inputs (ancestor): fields of `dim` columns each.
struct FmOp {
  static constexpr const char* kind = "fm";
  int64_t dim = 0;
  bool reduce = true;
};
constexpr auto fields_of(const FmOp*) {
  return std::make_tuple(field("dim", &FmOp::dim), field("reduce", &FmOp::reduce));
}

template <>
struct OpTraits<FmOp> : NoParameters, ReadsHalves {
  static constexpr StepKind step = StepKind::alone;
  static constexpr Across across = Across::row_by_row;
  static constexpr bool reads_ancestors = true;
  static constexpr Fields fields = Fields::in_any_order;

  template <class Shapes>
  static std::optional<NodeShape> infer(const FmOp& op, Shapes& node) {
    int64_t num_fields = 0;
    std::optional<NodeShape> shape = node.of_fields(op.dim, num_fields);
    if (shape && !op.reduce) shape->width = op.dim;
    return shape;
  }
  template <class Model>
  static Cost cost(const FmOp&, const Model& node) {
    return {node.input_elements() * 3, node.traffic()};
  }
};

}}  // namespace warprank::v0
