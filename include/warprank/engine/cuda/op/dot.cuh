// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Dot products of fields.

#include <type_traits>

#include "warprank/engine/cuda/prepare.cuh"
#include "warprank/engine/cuda/weights_memory.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/parameter_source.hpp"
#include "warprank/model/op/dot.hpp"
#include "warprank/ops/dot.cuh"
#include "warprank/plan/gather_fields.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

static_assert(Dot<float16>::max_inputs == plan::max_field_inputs);

inline Prepare bind_alone(const DotOp& op, int n, const BindOptions&, const detail::ParameterSource&, WeightsMemory&) {
  return [op, n](const Bindings& bindings, StepMemory& memory) {
    const Node& node = bindings.graph().node(n);
    return with_type(bindings.value(n), [&](auto y) {
      using Out = std::remove_pointer_t<decltype(y.data)>;
      return prepare_launch(
          "dot", Dot<Out>(halves_of_inputs(bindings, node), op.dim, op.pairs(), y, bindings.num_rows(node.axis)),
          memory);
    });
  };
}

}}}  // namespace warprank::v0::cuda_backend
