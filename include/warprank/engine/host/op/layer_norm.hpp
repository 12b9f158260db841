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
      [eps = op.eps, weight = std::move(weight), bias = std::move(bias)](RunState&, auto in, auto y) {
        host_ops::layer_norm(in[0].values, eps, weight, bias, y, in.size() > 1 ? in[1].values : Matrix<const float>());
      },
      no_workspace);
}

}}}  // namespace warprank::v0::host_backend
