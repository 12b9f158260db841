// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/plain_step.hpp"
#include "warprank/model/op/expand.hpp"
#include "warprank/ops/host/concat.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

inline StepPtr bind_op(const ExpandOp&, int n, Binder& model) {
  std::vector<InputRef> inputs = model.refs(n);
  inputs[0].pair = model.pairs.index_of(model.node(n).axis, model.node(inputs[0].node).axis);
  StepPtr step = make_plain_step(
      n, std::move(inputs), [](RunState&, auto in, auto y) { host_ops::expand(in[0].values, in[0].segments, y); },
      no_workspace);
  step->division = Division::rows;
  return step;
}

}}}  // namespace warprank::v0::host_backend
