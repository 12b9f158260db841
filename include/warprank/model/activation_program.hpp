// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Activations and batch norms as elementwise programs, and back: the planner recognises them when it folds them.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/model/op/list.hpp"

namespace warprank { inline namespace v0 {

/// x scale + shift.
inline ElementwiseOp batch_norm_op(const BatchNorm& norm) {
  using Function = ElementwiseFunction;
  using Kind = LearnedVector::Kind;
  ElementwiseProgram program;
  program.num_inputs = 1;
  program.num_vectors = 2;
  program.instructions = {{Function::mul, 0, 1}, {Function::add, 3, 2}};
  return {std::move(program),
          {{Kind::batch_norm_scale, norm.name, norm.eps, norm.affine},
           {Kind::batch_norm_shift, norm.name, norm.eps, norm.affine}}};
}

/// The activation of the layer `name`, from which PReLU and Dice read their vectors.
inline ElementwiseOp activation_op(const Activation& activation, const std::string& name) {
  using Function = ElementwiseFunction;
  using Kind = LearnedVector::Kind;
  ElementwiseOp op;
  op.program.num_inputs = 1;
  if (activation.kind == ActivationKind::prelu) {  // x > 0 ? x : alpha x
    op.program.num_vectors = 1;
    op.program.constants = {0.0f};
    op.program.instructions = {{Function::mul, 0, 1}, {Function::greater, 0, 2}, {Function::select, 0, 3, 4}};
    op.vectors = {{Kind::stored, name + ".prelu.alpha"}};
  } else if (activation.kind == ActivationKind::dice) {  // x (p + alpha (1 - p)), p = sigmoid(x scale + shift)
    op.program.num_vectors = 3;
    op.program.constants = {1.0f};
    op.program.instructions = {{Function::mul, 0, 1}, {Function::add, 5, 2}, {Function::sigmoid, 6},
                               {Function::sub, 4, 7}, {Function::mul, 3, 8}, {Function::add, 7, 9},
                               {Function::mul, 0, 10}};
    const std::string norm = name + ".dice";
    op.vectors = {{Kind::batch_norm_scale, norm, activation.eps, activation.affine},
                  {Kind::batch_norm_shift, norm, activation.eps, activation.affine},
                  {Kind::stored, norm + ".alpha"}};
  } else {
    for (const auto& [function, function_name] : names_of(Function{}))
      if (std::string(function_name) == name_of_enum(activation.kind))
        op.program.instructions = {{function, 0, -1, -1, activation.alpha}};
  }
  return op;
}

/// The batch norm that `op` is, if it is one.
inline std::optional<BatchNorm> batch_norm_of(const Op& op) {
  const auto* elementwise = std::get_if<ElementwiseOp>(&op);
  if (elementwise == nullptr || elementwise->vectors.size() != 2) return std::nullopt;
  const LearnedVector& scale = elementwise->vectors[0];
  BatchNorm norm{scale.name, scale.eps, scale.affine};
  if (!(*elementwise == batch_norm_op(norm))) return std::nullopt;
  return norm;
}

/// The activation that `op` is for the layer `name`, if it is one.
inline std::optional<Activation> activation_of(const Op& op, const std::string& name) {
  const auto* elementwise = std::get_if<ElementwiseOp>(&op);
  if (elementwise == nullptr || elementwise->program.instructions.empty()) return std::nullopt;
  for (const auto& [kind, kind_name] : names_of(ActivationKind{})) {
    Activation activation{kind, elementwise->program.instructions[0].alpha};
    if (kind == ActivationKind::identity) continue;
    if (!elementwise->vectors.empty()) {
      activation.eps = elementwise->vectors[0].eps;
      activation.affine = elementwise->vectors[0].affine;
    }
    if (kind != ActivationKind::dice) {
      activation.eps = Activation{}.eps;
      activation.affine = false;
    }
    if (*elementwise == activation_op(activation, name)) return activation;
  }
  return std::nullopt;
}

}}  // namespace warprank::v0
