// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/plain_step.hpp"
#include "warprank/model/op/softmax.hpp"
#include "warprank/ops/host/softmax.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

inline StepPtr bind_op(const SoftmaxOp&, int n, Binder& model) {
  return make_plain_step(
      n, model.refs(n), [](RunState&, auto in, auto y) { host_ops::softmax(in[0].values, y); }, no_workspace);
}

}}}  // namespace warprank::v0::host_backend
