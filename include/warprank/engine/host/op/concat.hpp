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
    std::vector<SegmentedInput>& parts = state.input_list;  // side by side, copied together
    int64_t column = 0;
    for (size_t i = 0; i < inputs_.size();) {
      const int64_t first = column;
      for (parts.clear(); i < inputs_.size() && !placed[i]; ++i) {
        parts.push_back(state.input(inputs_[i]));
        column += parts.back().values.cols;
      }
      host_ops::concat(parts, y.columns(first, column - first));
      for (; i < inputs_.size() && placed[i]; ++i) column += state.input(inputs_[i]).values.cols;
    }
  }

 private:
  int node_;
  std::vector<InputRef> inputs_;
};

inline StepPtr bind_op(const ConcatOp&, int n, Binder& model) { return std::make_unique<ConcatStep>(n, model.refs(n)); }

}}}  // namespace warprank::v0::host_backend
