// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Steps without weights.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "warprank/engine/host/run_state.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// An op without weights: `body(state, inputs, y)` calls the kernel; `workspace(state)` says what it needs.
template <class Body, class Workspace>
class PlainStep : public Step {
 public:
  PlainStep(int node, std::vector<InputRef> inputs, Body body, Workspace workspace)
      : node_(node), inputs_(std::move(inputs)), body_(std::move(body)), workspace_(std::move(workspace)) {}
  int64_t workspace(const RunState& state) const override { return workspace_(state); }
  void run(RunState& state) const override { body_(state, state.inputs(inputs_), state.value(node_)); }

 private:
  int node_;
  std::vector<InputRef> inputs_;
  Body body_;
  Workspace workspace_;
};

inline constexpr auto no_workspace = [](const RunState&) -> int64_t { return 0; };

template <class Body, class Workspace>
std::unique_ptr<Step> make_plain_step(int node, std::vector<InputRef> inputs, Body body, Workspace workspace) {
  return std::make_unique<PlainStep<Body, Workspace>>(node, std::move(inputs), std::move(body), std::move(workspace));
}

}}}  // namespace warprank::v0::host_backend
