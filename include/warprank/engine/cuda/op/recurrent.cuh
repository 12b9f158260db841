// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Recurrent layers.

#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/engine/cuda/naming.hpp"
#include "warprank/engine/cuda/prepare.cuh"
#include "warprank/engine/cuda/weights_memory.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/parameter_source.hpp"
#include "warprank/model/op/recurrent.hpp"
#include "warprank/ops/recurrent.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

inline Prepare bind_alone(const RecurrentOp& op, int n, const BindOptions&, const detail::ParameterSource& source,
                          WeightsMemory& memory) {
  const RecurrentShape shape{op.hidden};
  const std::vector<float> weight = source.load(op.name + ".weight"), bias = source.load(op.name + ".bias");
  const Buffer<unsigned char> packed = naming(op.name, [&] { return pack_recurrent(shape, weight, bias); });
  return [op, n, shape, at = memory.add(packed.data(), packed.size())](const Bindings& bindings, StepMemory& memory) {
    const Graph& graph = bindings.graph();
    const Node& node = graph.node(n);
    const int gates = node.inputs[static_cast<size_t>(op.gates())];
    const int event_axis = graph.node(gates).axis, parent = graph.axis(event_axis).parent;
    const auto keys = static_cast<float>(graph.node(node.inputs[0]).width);
    const RecurrentLayer layer{op.cell, shape, bindings.weights<unsigned char>(at),
                               op.scale != 0 ? op.scale : 1 / std::sqrt(keys)};
    RecurrentInputs in;
    in.gates = bindings.halves(gates);
    in.event_offsets = bindings.offsets({event_axis, parent});
    in.parents = {bindings.max_rows(parent), bindings.num_rows(parent)};
    if (op.attends()) {
      in.q = bindings.halves(node.inputs[0]);
      in.k = bindings.halves(node.inputs[1]);
      in.row_offsets = bindings.offsets({node.axis, parent});
    }
    return with_type(bindings.value(n), [&](auto y) {
      using Out = std::remove_pointer_t<decltype(y.data)>;
      return prepare_launch("recurrent", naming(op.name, [&] { return Recurrent<Out>(layer, in, y); }), memory);
    });
  };
}

}}}  // namespace warprank::v0::cuda_backend
