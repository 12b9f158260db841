// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Factorisation machines, dots and mixes: launches whose arguments travel with them.

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "warprank/engine/cuda/bindings.hpp"
#include "warprank/engine/cuda/launch.cuh"
#include "warprank/ops/dot.cuh"
#include "warprank/ops/fm.cuh"
#include "warprank/ops/mix.cuh"
#include "warprank/plan/gather_fields.hpp"

namespace warprank::cuda_backend {

template <class Launch>
PreparedStep prepare_plain(const char* kernel, Launch launch) {
  PreparedStep step;
  step.kernel = kernel;
  step.queue = [launch = std::move(launch)](device::Stream to) { launch.launch(to); };
  return step;
}

/// body(Matrix<half>) or body(Matrix<float>), as the value is.
template <class Body>
PreparedStep with_type(const FloatMatrix<void>& y, Body&& body) {
  if (y.type == DType::f16) return body(Matrix<half>(static_cast<half*>(y.data), y.rows, y.cols, y.stride));
  return body(Matrix<float>(static_cast<float*>(y.data), y.rows, y.cols, y.stride));
}

static_assert(Dot<half>::max_inputs == plan::max_field_inputs && Fm<half, half>::max_inputs == plan::max_field_inputs);

inline std::vector<AxisInput<half>> halves_of_inputs(const Bindings& bindings, const Node& node) {
  std::vector<AxisInput<half>> inputs;
  for (const int input : node.inputs) inputs.push_back(bindings.halves_on(input, node.axis));
  return inputs;
}

inline PreparedStep prepare_fm(int n, const Bindings& bindings) {
  const Node& node = bindings.graph().node(n);
  const auto& op = std::get<FmOp>(node.op);
  return with_type(bindings.value(n), [&](auto y) {
    using Out = std::remove_pointer_t<decltype(y.data)>;
    return prepare_plain(
        "fm", Fm<half, Out>(halves_of_inputs(bindings, node), op.dim, y, bindings.num_rows(node.axis), {op.reduce}));
  });
}

inline PreparedStep prepare_dot(int n, const Bindings& bindings) {
  const Node& node = bindings.graph().node(n);
  const auto& op = std::get<DotOp>(node.op);
  return with_type(bindings.value(n), [&](auto y) {
    using Out = std::remove_pointer_t<decltype(y.data)>;
    return prepare_plain(
        "dot", Dot<Out>(halves_of_inputs(bindings, node), op.dim, op.order, op.self, y, bindings.num_rows(node.axis)));
  });
}

/// Mixes on one axis and of one type.
inline PreparedStep prepare_mixes(const std::vector<int>& nodes, const Bindings& bindings) {
  return with_type(bindings.value(nodes[0]), [&](auto first) {
    using Out = std::remove_pointer_t<decltype(first.data)>;
    std::vector<MixTask<half, Out>> tasks;
    for (const int n : nodes) {
      const Node& node = bindings.graph().node(n);
      const FloatMatrix<void> y = bindings.value(n);
      tasks.push_back({bindings.halves_on(node.inputs[0], node.axis),
                       bindings.halves_on(node.inputs[1], node.axis),
                       {static_cast<Out*>(y.data), y.rows, y.cols, y.stride},
                       std::get<MixOp>(node.op).normalization});
    }
    const Mix<half, Out> mix(tasks, bindings.num_rows(bindings.graph().node(nodes[0]).axis));
    PreparedStep step = prepare_plain("mix", mix);
    step.reads_unused_rows = mix.reads_unused_rows();
    return step;
  });
}

}  // namespace warprank::cuda_backend
