// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/plain_step.hpp"
#include "warprank/model/op/pool.hpp"
#include "warprank/ops/host/segment_reduce.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

inline StepPtr bind_op(const PoolOp& op, int n, Binder& model) {
  const int input = model.node(n).inputs[0];
  const int pair = model.pairs.index_of(model.node(input).axis, model.node(n).axis);
  StepPtr step = make_plain_step(
      n, {{input, -1}},
      [op, pair](RunState& state, auto in, auto y) {
        host_ops::segment_reduce(in[0].values, state.segments_of(pair), op.pooling, y);
      },
      no_workspace);
  step->division = Division::rows;
  return step;
}

}}}  // namespace warprank::v0::host_backend
