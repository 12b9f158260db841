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

/// A linear layer over fields, the same for each of their `dim` columns: m[h, d] = act(sum_k W[h, k] v[k, d] + b[h]).
/// v are the fields of the one input, as in Wukong's linear compression (Zhang et al. 2024), or with two inputs the
/// products a[i, d] b[j, d] of their fields, k = i (fields of b) + j, as in a layer of xDeepFM's CIN (Lian et al.
/// 2018). m has `out` fields. The result is the first `kept` of them, then the sums over d of the last `summed`.
/// "<name>.weight" is [out, k], "<name>.bias" [out].
struct FieldLinearOp {
  static constexpr const char* kind = "field_linear";
  static constexpr int64_t max_summed_columns = 64;
  std::string name;
  int64_t dim = 0;  ///< columns of a field
  int64_t out = 0;
  int64_t kept = 0, summed = 0;
  bool bias = true;
  Activation activation;  ///< one without learned tensors
};
constexpr auto fields_of(const FieldLinearOp*) {
  return std::make_tuple(field("name", &FieldLinearOp::name), field("dim", &FieldLinearOp::dim),
                         field("out", &FieldLinearOp::out), field("kept", &FieldLinearOp::kept),
                         field("summed", &FieldLinearOp::summed), field("bias", &FieldLinearOp::bias),
                         field("activation", &FieldLinearOp::activation));
}

template <>
struct OpTraits<FieldLinearOp> : ReadsHalves {
  static constexpr StepKind step = StepKind::alone;
  static constexpr Across across = Across::row_by_row;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const FieldLinearOp& op, Shapes& node) {
    if (op.name.empty()) return node.fail("a name for the weights", "none");
    if (!node.count_is(1, 2) || !node.common_axis(false) || !node.is_good(op.activation)) return {};
    if (op.activation.kind == ActivationKind::prelu || op.activation.kind == ActivationKind::dice)
      return node.fail("an activation without learned tensors", name_of_enum(op.activation.kind));
    if (op.dim < 1) return node.fail("fields of 1 or more columns", std::to_string(op.dim));
    if (op.out < 1 || op.out > max_width / op.dim)
      return node.fail("1 or more fields, at most " + std::to_string(max_width) + " columns", std::to_string(op.out));
    if (op.kept < 0 || op.kept > op.out || op.summed < 0 || op.summed > op.out || op.kept + op.summed == 0) {
      return node.fail("results among " + std::to_string(op.out) + " fields",
                       std::to_string(op.kept) + " kept and " + std::to_string(op.summed) + " summed");
    }
    if (op.summed > 0 && op.dim > FieldLinearOp::max_summed_columns) {
      return node.fail(
          "fields of at most " + std::to_string(FieldLinearOp::max_summed_columns) + " columns to be summed",
          std::to_string(op.dim));
    }
    int64_t terms = 1;
    for (size_t i = 0; i < node.num_inputs(); ++i) {
      if (node.input(i).width % op.dim != 0)
        return node.fail("fields of " + std::to_string(op.dim) + " columns", node.show(node.input(i)));
      terms *= node.input(i).width / op.dim;
    }
    if (terms > max_width)
      return node.fail("at most " + std::to_string(max_width) + " products", std::to_string(terms));
    return NodeShape{node.input(0).axis, op.kept * op.dim + op.summed};
  }
  /// Inputs of the layer for each column.
  template <class Node>
  static int64_t terms(const FieldLinearOp& op, const Node& node) {
    int64_t terms = 1;
    for (size_t i = 0; i < node.num_inputs(); ++i) terms *= node.input(i).width / op.dim;
    return terms;
  }
  template <class Lister>
  static void parameters(const FieldLinearOp& op, Lister& node) {
    node.matrix(op.name + ".weight", {op.out, terms(op, node)});
    if (op.bias) node.vector(op.name + ".bias", {op.out});
  }
  template <class Model>
  static Cost cost(const FieldLinearOp& op, const Model& node) {
    return {node.rows() * 2 * static_cast<double>(op.out * op.dim * terms(op, node)), node.traffic()};
  }
};

}}  // namespace warprank::v0
