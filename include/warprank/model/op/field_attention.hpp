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

/// The interacting layer of AutoInt (Song et al. 2019): each field of a row attends to all fields of the row. For each
/// head, with q_f = Wq x_f, k_f = Wk x_f and v_f = Wv x_f of the fields x_f of `dim` columns,
/// y_f = act(sum_g w_fg v_g + Wr x_f), where w_f = softmax over g of scale <q_f, k_g>. Without `residual` there is no
/// Wr. A field of the result has the heads side by side. "<name>.query.weight", ".key.weight", ".value.weight" and
/// ".residual.weight" are [heads * head_dim, dim], the same for all fields.
struct FieldAttentionOp {
  static constexpr const char* kind = "field_attention";
  std::string name;
  int64_t dim = 0;  ///< columns of a field
  int64_t heads = 1, head_dim = 0;
  float scale = 0;  ///< 0: 1 / sqrt(head_dim)
  bool residual = true;
  Activation activation;  ///< one without learned tensors

  int64_t columns() const { return heads * head_dim; }  ///< of a field of the result
};
constexpr auto fields_of(const FieldAttentionOp*) {
  return std::make_tuple(field("name", &FieldAttentionOp::name), field("dim", &FieldAttentionOp::dim),
                         field("heads", &FieldAttentionOp::heads), field("head_dim", &FieldAttentionOp::head_dim),
                         field("scale", &FieldAttentionOp::scale), field("residual", &FieldAttentionOp::residual),
                         field("activation", &FieldAttentionOp::activation));
}

template <>
struct OpTraits<FieldAttentionOp> : ReadsHalves {
  static constexpr StepKind step = StepKind::alone;
  static constexpr Across across = Across::row_by_row;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const FieldAttentionOp& op, Shapes& node) {
    if (op.name.empty()) return node.fail("a name for the weights", "none");
    if (!node.count_is(1, 1) || !node.is_good(op.activation) || !node.is_finite("scale", op.scale)) return {};
    if (op.activation.kind == ActivationKind::prelu || op.activation.kind == ActivationKind::dice)
      return node.fail("an activation without learned tensors", name_of_enum(op.activation.kind));
    if (op.dim < 1) return node.fail("fields of 1 or more columns", std::to_string(op.dim));
    const auto& x = node.input(0);
    if (x.width % op.dim != 0) return node.fail("fields of " + std::to_string(op.dim) + " columns", node.show(x));
    const int64_t fields = x.width / op.dim;
    if (op.heads < 1 || op.head_dim < 1 || op.heads > max_width / fields ||
        op.head_dim > max_width / fields / op.heads) {
      return node.fail(
          "1 or more heads of 1 or more columns, at most " + std::to_string(max_width) + " columns of all fields",
          std::to_string(op.heads) + " heads of " + std::to_string(op.head_dim));
    }
    return NodeShape{x.axis, fields * op.columns()};
  }
  template <class Lister>
  static void parameters(const FieldAttentionOp& op, Lister& node) {
    for (const char* which : {".query", ".key", ".value"})
      node.matrix(op.name + which + ".weight", {op.columns(), op.dim});
    if (op.residual) node.matrix(op.name + ".residual.weight", {op.columns(), op.dim});
  }
  /// Projections, and scores and sums of all pairs of fields.
  template <class Model>
  static Cost cost(const FieldAttentionOp& op, const Model& node) {
    const double columns = node.width(), fields = columns / static_cast<double>(op.columns());
    const double projections = columns * static_cast<double>(op.dim) * (op.residual ? 8 : 6);
    const double pairs = fields * (4 * columns + 4 * static_cast<double>(op.heads) * fields);
    return {node.rows() * (projections + pairs), node.traffic()};
  }
};

}}  // namespace warprank::v0
