// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "warprank/core/fields.hpp"
#include "warprank/core/shape.hpp"
#include "warprank/model/elementwise.hpp"
#include "warprank/model/op/traits.hpp"

namespace warprank { inline namespace v0 {

/// y = (x - mean(x)) / sqrt(var(x) + eps) [* weight + bias] [* factor], over the columns of a row, or of each of the
/// equal parts of one. Inputs: x, and maybe a factor of the same shape. With folds x is made of several inputs, from
/// left to right: ((x_0 f_0 x_1) f_1 x_2) f_2 x_3, where each f is a sum or a product. Planning makes these.
struct LayerNormOp {
  static constexpr const char* kind = "layer_norm";
  static constexpr int64_t max_groups = 4096;  ///< each is a program of its own on a GPU
  static constexpr size_t max_folds = 3;
  std::string name;
  float eps = 1e-5f;
  bool affine = true;
  int64_t groups = 1;    ///< parts of a row, tokens for one
  bool stacked = false;  ///< every part has a weight and a bias of its own: a leading [groups] dimension
  std::vector<ElementwiseFunction> folds = {};

  size_t num_folded() const { return folds.size() + 1; }  ///< inputs, but for the factor
};
constexpr auto fields_of(const LayerNormOp*) {
  return std::make_tuple(field("name", &LayerNormOp::name), field("eps", &LayerNormOp::eps),
                         field("affine", &LayerNormOp::affine), field("groups", &LayerNormOp::groups),
                         field("stacked", &LayerNormOp::stacked), optional_field("folds", &LayerNormOp::folds));
}

template <>
struct OpTraits<LayerNormOp> : ReadsFloats {
  static constexpr StepKind step = StepKind::rows;
  static constexpr Across across = Across::row_by_row;
  static constexpr bool reads_ancestors = false;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const LayerNormOp& op, Shapes& node) {
    if (op.affine && op.name.empty()) return node.fail("a name for the weights", "none");
    if (!node.eps_is_good(op.eps)) return {};
    if (op.groups < 1 || op.groups > op.max_groups)
      return node.fail("1 to " + std::to_string(op.max_groups) + " groups", std::to_string(op.groups));
    if (op.folds.size() > op.max_folds)
      return node.fail("at most " + std::to_string(op.max_folds) + " folds", std::to_string(op.folds.size()));
    for (const ElementwiseFunction fold : op.folds)
      if (fold != ElementwiseFunction::add && fold != ElementwiseFunction::mul)
        return node.fail("folds that are sums or products", name_of_enum(fold));
    if (!node.count_is(op.num_folded(), op.num_folded() + 1) || !node.common_axis(false)) return {};
    const auto& x = node.input(0);
    for (size_t i = 1; i < node.num_inputs(); ++i)
      if (node.input(i).width != x.width)
        return node.fail(std::to_string(x.width) + " columns of each input", std::to_string(node.input(i).width));
    if (x.width % op.groups != 0)
      return node.fail("columns that divide into " + std::to_string(op.groups) + " groups", node.show(x));
    return NodeShape{x.axis, x.width};
  }
  template <class Lister>
  static void parameters(const LayerNormOp& op, Lister& node) {
    if (!op.affine) return;
    Shape shape{node.width() / op.groups};
    if (op.stacked) shape.insert(shape.begin(), op.groups);
    node.vector(op.name + ".weight", shape);
    node.vector(op.name + ".bias", shape);
  }
  template <class Model>
  static Cost cost(const LayerNormOp&, const Model& node) {
    return {node.elements() * 8, node.traffic()};
  }
};

}}  // namespace warprank::v0
