// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "warprank/engine/host/binder.hpp"
#include "warprank/model/op/elementwise.hpp"
#include "warprank/ops/host/elementwise.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

class ElementwiseStep : public Step {
 public:
  ElementwiseStep(int node, ElementwiseProgram program, std::vector<InputRef> inputs,
                  std::vector<std::vector<float>> vectors)
      : node_(node), program_(std::move(program)), inputs_(std::move(inputs)), vectors_(std::move(vectors)) {
    for (const auto& v : vectors_) pointers_.push_back(v.data());
  }
  int64_t workspace(const RunState&) const override { return host_ops::elementwise_workspace(program_); }
  void run(RunState& state) const override {
    host_ops::elementwise(program_, state.inputs(inputs_), pointers_, state.value(node_), state.workspace_span());
  }
  int64_t bytes() const override {
    int64_t floats = 0;
    for (const auto& v : vectors_) floats += static_cast<int64_t>(v.size());
    return floats * static_cast<int64_t>(sizeof(float));
  }

 private:
  int node_;
  ElementwiseProgram program_;
  std::vector<InputRef> inputs_;
  std::vector<std::vector<float>> vectors_;
  std::vector<const float*> pointers_;
};

inline StepPtr bind_op(const ElementwiseOp& op, int n, Binder& model) {
  std::vector<std::vector<float>> vectors;
  for (const LearnedVector& v : op.vectors) vectors.push_back(model.source.learned_vector(v));
  return std::make_unique<ElementwiseStep>(n, op.program, model.refs(n), std::move(vectors));
}

}}}  // namespace warprank::v0::host_backend
