// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How launches of ops become prepared steps.

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "warprank/engine/cuda/bindings.hpp"
#include "warprank/engine/cuda/launch.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// What a step of a model is prepared by, for each capacity of each context.
using Prepare = std::function<PreparedStep(const Bindings&, StepMemory&)>;

/// What a primitive queues, with the memory that it needs.
template <class Launch>
PreparedStep prepare_launch(const char* kernel, Launch launch, StepMemory& memory) {
  PreparedStep step;
  step.kernel = kernel;
  step.num_launches = launch.num_launches();
  step.reads_unused_rows = launch.reads_unused_rows();
  const LaunchMemory of_launch = memory.of(launch);
  step.queue = [launch = std::make_shared<const Launch>(std::move(launch)), of_launch](device::Stream to) {
    launch->launch(of_launch, to);
  };
  return step;
}

/// body(Matrix<half>) or body(Matrix<float>), as the value is.
template <class Body>
PreparedStep with_type(const FloatMatrix<void>& y, Body&& body) {
  if (y.type == DType::f16) return body(Matrix<float16>(static_cast<float16*>(y.data), y.rows, y.cols, y.stride));
  return body(Matrix<float>(static_cast<float*>(y.data), y.rows, y.cols, y.stride));
}

/// FP16 matrices of fields, some of them on outer axes.
inline std::vector<AxisInput<float16>> halves_of_inputs(const Bindings& bindings, const Node& node) {
  std::vector<AxisInput<float16>> inputs;
  for (const int input : node.inputs) inputs.push_back(bindings.halves_on(input, node.axis));
  return inputs;
}

}}}  // namespace warprank::v0::cuda_backend
