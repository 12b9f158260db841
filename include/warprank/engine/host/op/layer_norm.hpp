// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/plain_step.hpp"
#include "warprank/model/op/layer_norm.hpp"
#include "warprank/ops/host/layer_norm.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

inline StepPtr bind_op(const LayerNormOp& op, int n, Binder& model) {
  std::vector<float> weight, bias;
  if (op.affine) {
    weight = model.source.load(op.name + ".weight");
    bias = model.source.load(op.name + ".bias");
  }
  return make_plain_step(
      n, model.refs(n),
      [op, weight = std::move(weight), bias = std::move(bias)](RunState&, auto in, auto y) {
        const int64_t width = y.cols / op.groups;
        for (int64_t group = 0; group < op.groups; ++group) {
          const auto part = [&](auto matrix) { return matrix.columns(group * width, width); };
          const auto learned = [&](const std::vector<float>& values) {
            return op.affine ? Span<const float>(values.data() + (op.stacked ? group * width : 0), width)
                             : Span<const float>();
          };
          host_ops::layer_norm(part(in[0].values), op.eps, learned(weight), learned(bias), part(y),
                               in.size() > 1 ? part(in[1].values) : Matrix<const float>());
        }
      },
      no_workspace);
}

}}}  // namespace warprank::v0::host_backend
