// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/plain_step.hpp"
#include "warprank/model/op/dot.hpp"
#include "warprank/ops/host/dot.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

inline StepPtr bind_op(const DotOp& op, int n, Binder& model) {
  int64_t num_fields = 0;
  for (int input : model.node(n).inputs) num_fields += model.node(input).width / op.dim;
  return make_plain_step(
      n, model.refs(n),
      [op, precision = model.precision](RunState& state, auto in, auto y) {
        host_ops::dot(in, op.dim, op.pairs(), y, state.workspace_span(), precision);
      },
      [op, num_fields](const RunState&) { return host_ops::dot_workspace(num_fields, op.dim, op.pairs()); });
}

}}}  // namespace warprank::v0::host_backend
