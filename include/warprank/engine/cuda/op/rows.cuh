// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Everything that is done row by row without a matrix product, and what only copies: one launch of row programs.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/engine/cuda/bindings.hpp"
#include "warprank/engine/cuda/launch.cuh"
#include "warprank/engine/cuda/prepare.cuh"
#include "warprank/engine/cuda/weights_memory.hpp"
#include "warprank/engine/parameter_source.hpp"
#include "warprank/ops/row_programs.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// One such node. Weights are offsets in the model's memory, -1: none.
struct RowNode {
  int node = -1;
  std::vector<bool> parts_in_place;  ///< of a concat: those that need no copy
  std::vector<int64_t> vectors;
  int64_t gamma = -1, beta = -1;
};

inline RowNode make_row_node(const Graph& graph, const plan::Storage& storage, int n,
                             const detail::ParameterSource& source, WeightsMemory& memory) {
  RowNode made{n, storage.part_placed[static_cast<size_t>(n)], {}, -1, -1};
  const Op& op = graph.node(n).op;
  if (const auto* elementwise = std::get_if<ElementwiseOp>(&op)) {
    if (!fits_row_program(elementwise->program))
      throw invalid_argument("elementwise '" + graph.node(n).name + "'",
                             "a program with at most 16 values alive at once", "one with more");
    for (const LearnedVector& v : elementwise->vectors) made.vectors.push_back(memory.add(source.learned_vector(v)));
  } else if (const auto* norm = std::get_if<LayerNormOp>(&op); norm != nullptr && norm->affine) {
    made.gamma = memory.add(source.load(norm->name + ".weight"));
    made.beta = memory.add(source.load(norm->name + ".bias"));
  }
  return made;
}

/// Row programs with what they refer to.
class RowPrograms {
 public:
  explicit RowPrograms(const Bindings& bindings) : bindings_(bindings) {}

  void add(const RowNode& row) {
    const Node& node = bindings_.graph().node(row.node);
    if (!row.parts_in_place.empty()) return add_concat(row);
    if (std::holds_alternative<LayerNormOp>(node.op)) return add_layer_norm(row);
    RowProgram& program = programs_.emplace_back();
    std::vector<AxisInput<void>>& inputs = inputs_.emplace_back();
    for (const int input : node.inputs) inputs.push_back(bindings_.input_on(input, node.axis));
    std::vector<const float*>& vectors = vectors_.emplace_back();
    for (const int64_t v : row.vectors) vectors.push_back(bindings_.weights<float>(v));
    if (const auto* elementwise = std::get_if<ElementwiseOp>(&node.op)) program.program = &elementwise->program;
    program.step = step_of(node.op);
    program.y = bindings_.value(row.node);
    program.num_rows = bindings_.num_rows(node.axis);
  }
  void add_copy(AxisInput<void> from, FloatMatrix<void> to, const int64_t* num_rows) {
    RowProgram& program = programs_.emplace_back();
    inputs_.push_back({from});
    vectors_.emplace_back();
    program.y = to;
    program.num_rows = num_rows;
  }

  PreparedStep prepare(StepMemory& memory) {
    for (size_t i = 0; i < programs_.size(); ++i) {
      programs_[i].inputs = inputs_[i];
      programs_[i].vectors = vectors_[i];
    }
    return prepare_launch("row_programs", RowProgramLaunch(programs_), memory);
  }

 private:
  static RowStep step_of(const Op& op) {
    if (std::holds_alternative<SoftmaxOp>(op)) return SoftmaxOfRow{};
    if (const auto* reduce = std::get_if<ReduceOp>(&op)) return ReduceRow{reduce->pooling};
    return EachElement{};
  }
  /// A program for each group.
  void add_layer_norm(const RowNode& row) {
    const Node& node = bindings_.graph().node(row.node);
    const auto& norm = std::get<LayerNormOp>(node.op);
    const int64_t width = node.width / norm.groups;
    for (int64_t group = 0; group < norm.groups; ++group) {
      const auto input = [&](size_t i) {
        AxisInput<void> part = bindings_.input_on(node.inputs[i], node.axis);
        part.values = part.values.columns(group * width, width);
        return part;
      };
      const auto learned = [&](int64_t offset) {
        return offset < 0 ? nullptr : bindings_.weights<float>(offset) + (norm.stacked ? group * width : 0);
      };
      std::vector<AxisInput<void>>& inputs = inputs_.emplace_back();
      for (size_t i = 0; i < norm.num_folded(); ++i) inputs.push_back(input(i));
      vectors_.emplace_back();
      RowProgram& program = programs_.emplace_back();
      program.folds = norm.folds;
      if (node.inputs.size() > norm.num_folded()) program.factor = input(norm.num_folded());
      program.step = LayerNormOfRow{norm.eps, learned(row.gamma), learned(row.beta)};
      program.y = bindings_.value(row.node).columns(group * width, width);
      program.num_rows = bindings_.num_rows(node.axis);
    }
  }
  void add_concat(const RowNode& row) {
    const Node& node = bindings_.graph().node(row.node);
    int64_t column = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int64_t width = bindings_.graph().node(node.inputs[i]).width;
      if (!row.parts_in_place[i])
        add_copy(bindings_.input_on(node.inputs[i], node.axis), bindings_.value(row.node).columns(column, width),
                 bindings_.num_rows(node.axis));
      column += width;
    }
  }

  const Bindings& bindings_;
  std::vector<RowProgram> programs_;
  std::vector<std::vector<AxisInput<void>>> inputs_;
  std::vector<std::vector<const float*>> vectors_;
};

inline PreparedStep prepare_rows(const std::vector<RowNode>& rows, const Bindings& bindings, StepMemory& memory) {
  RowPrograms programs(bindings);
  for (const RowNode& row : rows) programs.add(row);
  return programs.prepare(memory);
}

/// Outputs that lie in the arena go to where outputs leave from.
inline PreparedStep prepare_output_copies(const std::vector<OutputPlace>& outputs, const Bindings& bindings,
                                          StepMemory& memory) {
  RowPrograms programs(bindings);
  for (const OutputPlace& output : outputs)
    programs.add_copy({bindings.input(output.node), nullptr, nullptr}, bindings.output(output),
                      bindings.num_rows(bindings.graph().node(output.node).axis));
  return programs.prepare(memory);
}

}}}  // namespace warprank::v0::cuda_backend
