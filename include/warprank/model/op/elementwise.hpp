// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "warprank/core/fields.hpp"
#include "warprank/model/elementwise.hpp"
#include "warprank/model/op/batch_norm.hpp"
#include "warprank/model/op/traits.hpp"

namespace warprank { inline namespace v0 {

/// A program of elementwise functions over the inputs (ancestor; one column or all) and learned vectors.
struct ElementwiseOp {
  static constexpr const char* kind = "elementwise";
  ElementwiseProgram program;
  std::vector<LearnedVector> vectors;
};
constexpr auto fields_of(const ElementwiseOp*) {
  return std::make_tuple(field("program", &ElementwiseOp::program), field("vectors", &ElementwiseOp::vectors));
}

template <>
struct OpTraits<ElementwiseOp> : ReadsFloats {
  static constexpr StepKind step = StepKind::rows;
  static constexpr Across across = Across::row_by_row;
  static constexpr bool reads_ancestors = true;
  static constexpr Fields fields = Fields::none;

  template <class Shapes>
  static std::optional<NodeShape> infer(const ElementwiseOp& op, Shapes& node) {
    if (!node.count_is(1, SIZE_MAX)) return {};
    if (!node.is_valid(op.program)) return {};
    if (static_cast<size_t>(op.program.num_inputs) != node.num_inputs() ||
        static_cast<size_t>(op.program.num_vectors) != op.vectors.size())
      return node.fail(std::to_string(op.program.num_inputs) + " inputs and " + std::to_string(op.program.num_vectors) +
                           " learned vectors",
                       std::to_string(node.num_inputs()) + " and " + std::to_string(op.vectors.size()));
    for (const Instruction& instruction : op.program.instructions)
      if (!node.is_finite("alpha", instruction.alpha)) return {};
    for (const LearnedVector& vector : op.vectors)
      if (!node.eps_is_good(vector.eps)) return {};
    const auto axis = node.common_axis(true);
    if (!axis) return {};
    size_t widest = 0;
    for (size_t i = 1; i < node.num_inputs(); ++i)
      if (node.input(i).width > node.input(widest).width) widest = i;
    const int64_t width = std::max<int64_t>(node.input(widest).width, 1);
    for (size_t i = 0; i < node.num_inputs(); ++i)
      if (node.input(i).width != width && node.input(i).width != 1)
        return node.fail("inputs of one width, or of 1 column",
                         node.show(node.input(i)) + " and " + node.show(node.input(widest)));
    return NodeShape{*axis, width};
  }

  template <class Lister>
  static void parameters(const ElementwiseOp& op, Lister& node) {
    for (const LearnedVector& v : op.vectors) {
      if (v.kind == LearnedVector::Kind::stored) {
        node.vector(v.name, {node.width()});
      } else {
        node.batch_norm(v.name, v.affine, {node.width()});
      }
    }
  }

  template <class Model>
  static Cost cost(const ElementwiseOp& op, const Model& node) {
    return {node.elements() * static_cast<double>(op.program.instructions.size()), node.traffic()};
  }
};

}}  // namespace warprank::v0
