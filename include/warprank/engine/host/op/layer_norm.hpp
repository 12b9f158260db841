// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/plain_step.hpp"
#include "warprank/model/elementwise.hpp"
#include "warprank/model/op/layer_norm.hpp"
#include "warprank/ops/host/elementwise.hpp"
#include "warprank/ops/host/layer_norm.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// The folds as a program.
inline ElementwiseProgram program_of(const std::vector<ElementwiseFunction>& folds) {
  ElementwiseProgram program;
  program.num_inputs = static_cast<int>(folds.size()) + 1;
  for (int i = 0; i + 1 < program.num_inputs; ++i)
    program.instructions.push_back(
        {folds[static_cast<size_t>(i)], i == 0 ? 0 : program.num_inputs + i - 1, i + 1, -1, 0});
  return program;
}

inline StepPtr bind_op(const LayerNormOp& op, int n, Binder& model) {
  std::vector<float> weight, bias;
  if (op.affine) {
    weight = model.source.load(op.name + ".weight");
    bias = model.source.load(op.name + ".bias");
  }
  return make_plain_step(
      n, model.refs(n),
      [op, folds = program_of(op.folds), weight = std::move(weight), bias = std::move(bias)](RunState& state, auto in,
                                                                                             auto y) {
        Matrix<const float> x = in[0].values;
        if (!op.folds.empty()) {
          host_ops::elementwise(folds, {in.data(), static_cast<int64_t>(op.num_folded())}, {}, y,
                                state.workspace_span());
          x = y;
        }
        const bool has_factor = in.size() > static_cast<int64_t>(op.num_folded());
        const int64_t width = y.cols / op.groups;
        for (int64_t group = 0; group < op.groups; ++group) {
          const auto part = [&](auto matrix) { return matrix.columns(group * width, width); };
          const auto learned = [&](const std::vector<float>& values) {
            return op.affine ? Span<const float>(values.data() + (op.stacked ? group * width : 0), width)
                             : Span<const float>();
          };
          host_ops::layer_norm(part(x), op.eps, learned(weight), learned(bias), part(y),
                               has_factor ? part(in[in.size() - 1].values) : Matrix<const float>());
        }
      },
      [folds = program_of(op.folds)](const RunState&) {
        return folds.instructions.empty() ? 0 : host_ops::elementwise_workspace(folds);
      });
}

}}}  // namespace warprank::v0::host_backend
