// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Token mixing.

#include <cstdint>
#include <optional>
#include <type_traits>

#include "warprank/engine/cuda/prepare.cuh"
#include "warprank/engine/cuda/weights_memory.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/parameter_source.hpp"
#include "warprank/model/op/mix_tokens.hpp"
#include "warprank/ops/mix_tokens.cuh"
#include "warprank/plan/fuse_token_norm.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

static_assert(MixTokens<float16>::max_normed_columns == plan::max_normed_token_columns);

/// Where a norm's vectors begin in the model's memory.
struct TokenNormWeights {
  float eps = 0;
  int64_t gamma = -1, beta = -1;
  LayerNormOfRow in(const Bindings& bindings) const {
    return {eps, bindings.weights<float>(gamma), bindings.weights<float>(beta)};
  }
};

inline Prepare bind_alone(const MixTokensOp& op, int n, const BindOptions&, const detail::ParameterSource& source,
                          WeightsMemory& memory) {
  const auto add = [&](const TokenNorm& norm) {
    const int64_t gamma = memory.add(source.load(norm.name + ".weight"));
    return TokenNormWeights{norm.eps, gamma, memory.add(source.load(norm.name + ".bias"))};
  };
  std::optional<TokenNormWeights> input_norm;
  if (op.input_norm) input_norm = add(*op.input_norm);
  return [tokens = op.tokens, n, input_norm, norm = add(op.norm)](const Bindings& bindings, StepMemory& memory) {
    const Node& node = bindings.graph().node(n);
    MixTokensOptions options{norm.in(bindings), {}};
    if (input_norm) options.input_norm = input_norm->in(bindings);
    return with_type(bindings.value(n), [&](auto y) {
      using Out = std::remove_pointer_t<decltype(y.data)>;
      return prepare_launch(
          "mix_tokens",
          MixTokens<Out>(bindings.halves(node.inputs[0]), tokens, y, bindings.num_rows(node.axis), options), memory);
    });
  };
}

}}}  // namespace warprank::v0::cuda_backend
