// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Steps that one call of a kernel computes.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "warprank/engine/host/run_state.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// An op of one call: `body(state, inputs, y)` calls the kernel; `workspace(state)` says what it needs, `bytes` how
/// many its weights take.
template <class Body, class Workspace>
class PlainStep : public Step {
 public:
  PlainStep(int node, std::vector<InputRef> inputs, Body body, Workspace workspace, int64_t bytes)
      : node_(node),
        bytes_(bytes),
        inputs_(std::move(inputs)),
        body_(std::move(body)),
        workspace_(std::move(workspace)) {}
  int64_t workspace(const RunState& state) const override { return workspace_(state); }
  void run(RunState& state) const override { body_(state, state.inputs(inputs_), state.value(node_)); }
  int64_t bytes() const override { return bytes_; }

 private:
  int node_;
  int64_t bytes_;
  std::vector<InputRef> inputs_;
  Body body_;
  Workspace workspace_;
};

inline constexpr auto no_workspace = [](const RunState&) -> int64_t { return 0; };

template <class Body, class Workspace>
std::unique_ptr<Step> make_plain_step(int node, std::vector<InputRef> inputs, Body body, Workspace workspace,
                                      int64_t bytes = 0) {
  return std::make_unique<PlainStep<Body, Workspace>>(node, std::move(inputs), std::move(body), std::move(workspace),
                                                      bytes);
}

}}}  // namespace warprank::v0::host_backend
