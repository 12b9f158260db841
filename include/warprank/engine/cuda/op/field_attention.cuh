// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Attention over the fields of rows.

#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/engine/cuda/naming.hpp"
#include "warprank/engine/cuda/prepare.cuh"
#include "warprank/engine/cuda/weights_memory.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/parameter_source.hpp"
#include "warprank/model/op/field_attention.hpp"
#include "warprank/ops/field_attention.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

inline Prepare bind_alone(const FieldAttentionOp& op, int n, const BindOptions&, const detail::ParameterSource& source,
                          WeightsMemory& memory) {
  const auto load = [&](const char* which) { return source.load(op.name + which); };
  const FieldAttentionShape shape{op.dim, op.heads, op.head_dim};
  const std::vector<float> query = load(".query.weight"), key = load(".key.weight"), value = load(".value.weight");
  const std::vector<float> residual = source.load_if(op.residual, op.name + ".residual.weight");
  const Buffer<unsigned char> packed =
      naming(op.name, [&] { return pack_field_attention(shape, query, key, value, residual); });
  const float scale = op.scale != 0 ? op.scale : 1 / std::sqrt(static_cast<float>(op.head_dim));
  return [op, n, shape, scale, at = memory.add(packed.data(), packed.size())](const Bindings& bindings,
                                                                              StepMemory& memory) {
    const Node& node = bindings.graph().node(n);
    const FieldAttentionLayer layer{
        shape, bindings.weights<unsigned char>(at), scale, op.residual, {op.activation.kind, op.activation.alpha}};
    return with_type(bindings.value(n), [&](auto y) {
      using Out = std::remove_pointer_t<decltype(y.data)>;
      return prepare_launch("field_attention",
                            naming(op.name,
                                   [&] {
                                     return FieldAttention<Out>(bindings.halves(node.inputs[0]), layer, y,
                                                                bindings.num_rows(node.axis));
                                   }),
                            memory);
    });
  };
}

}}}  // namespace warprank::v0::cuda_backend
