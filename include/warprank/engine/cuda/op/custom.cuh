// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A user's own kernels as a step.

#include <utility>
#include <vector>

#include "warprank/engine/cuda/prepare.cuh"
#include "warprank/engine/cuda/weights_memory.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/parameter_source.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

inline PreparedStep prepare_custom(const CustomOp& op, int n, CudaCustomFunction function, const Bindings& bindings) {
  const Node& node = bindings.graph().node(n);
  std::vector<AxisInput<void>> inputs;
  for (const int input : node.inputs) inputs.push_back(bindings.input_on(input, node.axis));
  PreparedStep step;
  step.kernel = op.function;
  step.captures_weights = true;  // its function decides what is queued
  step.queue = [inputs = std::move(inputs), y = bindings.value(n), num_rows = bindings.num_rows(node.axis),
                settings = op.settings, function = std::move(function)](device::Stream to) {
    function({inputs, y, num_rows, settings, reinterpret_cast<StreamHandle>(to)});
  };
  return step;
}

inline Prepare bind_alone(const CustomOp& op, int n, const BindOptions& options, const detail::ParameterSource&,
                          WeightsMemory&) {
  return [op, n, function = options.cuda_custom.at(op.function)](const Bindings& bindings, StepMemory&) {
    return prepare_custom(op, n, function, bindings);
  };
}

}}}  // namespace warprank::v0::cuda_backend
