// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/plain_step.hpp"
#include "warprank/model/op/custom.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

inline StepPtr bind_op(const CustomOp& op, int n, Binder& model) {
  return make_plain_step(
      n, model.refs(n),
      [function = model.options.custom.at(op.function), settings = op.settings](RunState&, auto in, auto y) {
        function({in, y, settings});
      },
      no_workspace);
}

}}}  // namespace warprank::v0::host_backend
