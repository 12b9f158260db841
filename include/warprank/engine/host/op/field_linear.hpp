// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/plain_step.hpp"
#include "warprank/model/op/field_linear.hpp"
#include "warprank/ops/host/field_linear.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

inline StepPtr bind_op(const FieldLinearOp& op, int n, Binder& model) {
  const std::vector<float> weight = model.source.load(op.name + ".weight");
  const std::vector<float> bias = model.source.load_if(op.bias, op.name + ".bias");
  if (op.out > host_ops::max_dot_outputs) model.check_weight(op.name + ".weight", weight);
  const std::vector<int>& inputs = model.node(n).inputs;
  const auto fields_of = [&](size_t i) { return i < inputs.size() ? model.node(inputs[i]).width / op.dim : 0; };
  host_ops::PackedFieldLinear packed(weight, bias, fields_of(0), fields_of(1), op.dim, op.out, op.activation,
                                     model.precision);
  const int64_t bytes = packed.bytes(), workspace = packed.workspace_size();
  return make_plain_step(
      n, model.refs(n),
      [kept = op.kept, packed = std::move(packed)](RunState& state, auto in, auto y) {
        host_ops::field_linear(packed, kept, in[0].values, in.size() > 1 ? in[1].values : Matrix<const float>(), y,
                               state.workspace_span());
      },
      [workspace](const RunState&) { return workspace; }, bytes);
}

}}}  // namespace warprank::v0::host_backend
