// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "warprank/engine/host/binder.hpp"
#include "warprank/model/op/concat.hpp"
#include "warprank/ops/host/concat.hpp"

namespace warprank { inline namespace v0 { namespace host_backend {

/// Copies the parts that their producers could not write in place.
class ConcatStep : public Step {
 public:
  ConcatStep(int node, std::vector<InputRef> inputs) : node_(node), inputs_(std::move(inputs)) {}
  void run(RunState& state) const override {
    const std::vector<bool>& placed = state.storage().part_placed[static_cast<size_t>(node_)];
    const Matrix<float> y = state.value(node_);
    int64_t column = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const SegmentedInput part = state.input(inputs_[i]);
      if (!placed[i]) host_ops::concat({&part, 1}, y.columns(column, part.values.cols));
      column += part.values.cols;
    }
  }

 private:
  int node_;
  std::vector<InputRef> inputs_;
};

inline StepPtr bind_op(const ConcatOp&, int n, Binder& model) { return std::make_unique<ConcatStep>(n, model.refs(n)); }

}}}  // namespace warprank::v0::host_backend
