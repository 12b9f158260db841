// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/plain_step.hpp"
#include "warprank/model/op/mix_tokens.hpp"
#include "warprank/ops/host/mix_tokens.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

inline StepPtr bind_op(const MixTokensOp& op, int n, Binder& model) {
  struct Loaded {
    float eps = 0;
    std::vector<float> gamma, beta;
    host_ops::TokenNormVectors vectors() const { return {eps, gamma, beta}; }
  };
  const auto load = [&](const TokenNorm& norm) {
    return Loaded{norm.eps, model.source.load(norm.name + ".weight"), model.source.load(norm.name + ".bias")};
  };
  std::optional<Loaded> input_norm;
  if (op.input_norm) input_norm = load(*op.input_norm);
  const int64_t workspace = model.node(n).width * (op.input_norm ? 2 : 1);
  return make_plain_step(
      n, model.refs(n),
      [tokens = op.tokens, input_norm = std::move(input_norm), norm = load(op.norm)](RunState& state, auto in, auto y) {
        const auto of_input = input_norm ? input_norm->vectors() : host_ops::TokenNormVectors();
        host_ops::mix_tokens(in[0].values, tokens, norm.vectors(), input_norm ? &of_input : nullptr, y,
                             state.workspace_span());
      },
      [workspace](const RunState&) { return workspace; });
}

}}}  // namespace warprank::v0::host_backend
