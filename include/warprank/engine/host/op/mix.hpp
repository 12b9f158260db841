// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/plain_step.hpp"
#include "warprank/model/op/mix.hpp"
#include "warprank/ops/host/mix.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

inline StepPtr bind_op(const MixOp& op, int n, Binder& model) {
  const int64_t num_experts = model.node(model.node(n).inputs[1]).width;
  return make_plain_step(
      n, model.refs(n),
      [op](RunState& state, auto in, auto y) {
        host_ops::MixEnd end;
        if (op.multiply) end.multiply = in[2].values;
        if (op.residual) end.residual = in[2 + op.multiply].values;
        host_ops::mix(in[0], in[1], op.normalization, y, state.workspace_span(), end);
      },
      [num_experts](const RunState&) { return host_ops::mix_workspace(num_experts); });
}

}}}  // namespace warprank::v0::host_backend
