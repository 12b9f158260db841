// SPDX-License-Identifier: Apache-2.0
#pragma once

/// bind on the host: a plan's nodes become steps with packed weights.

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/engine/host/binder.hpp"
#include "warprank/engine/host/op/attention.hpp"
#include "warprank/engine/host/op/concat.hpp"
#include "warprank/engine/host/op/custom.hpp"
#include "warprank/engine/host/op/dense.hpp"
#include "warprank/engine/host/op/din_attention.hpp"
#include "warprank/engine/host/op/dot.hpp"
#include "warprank/engine/host/op/elementwise.hpp"
#include "warprank/engine/host/op/embed.hpp"
#include "warprank/engine/host/op/expand.hpp"
#include "warprank/engine/host/op/field_attention.hpp"
#include "warprank/engine/host/op/field_linear.hpp"
#include "warprank/engine/host/op/fm.hpp"
#include "warprank/engine/host/op/layer_norm.hpp"
#include "warprank/engine/host/op/linear.hpp"
#include "warprank/engine/host/op/mix.hpp"
#include "warprank/engine/host/op/mix_tokens.hpp"
#include "warprank/engine/host/op/pool.hpp"
#include "warprank/engine/host/op/reduce.hpp"
#include "warprank/engine/host/op/slice.hpp"
#include "warprank/engine/host/op/softmax.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// Steps in order; what they read beyond values is left in `model`.
inline std::vector<StepPtr> make_steps(const plan::Storage& storage, Binder& model) {
  std::vector<StepPtr> steps;
  for (const std::vector<int>& launch : storage.steps) {
    if (std::holds_alternative<EmbedOp>(model.node(launch[0]).op)) {
      steps.push_back(bind_look_ups(launch, model));
      steps.back()->nodes = launch;
      continue;
    }
    for (int n : launch) {
      StepPtr step = std::visit([&](const auto& op) { return bind_op(op, n, model); }, model.node(n).op);
      if (step == nullptr) continue;
      step->nodes = {n};
      steps.push_back(std::move(step));
    }
  }
  return steps;
}

}}}  // namespace warprank::v0::host_backend
