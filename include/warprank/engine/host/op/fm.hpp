// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/plain_step.hpp"
#include "warprank/model/op/fm.hpp"
#include "warprank/ops/host/fm.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

inline StepPtr bind_op(const FmOp& op, int n, Binder& model) {
  return make_plain_step(
      n, model.refs(n),
      [op](RunState& state, auto in, auto y) { host_ops::fm(in, op.dim, op.reduce, y, state.workspace_span()); },
      [op](const RunState&) { return host_ops::fm_workspace(op.dim); });
}

}}}  // namespace warprank::v0::host_backend
