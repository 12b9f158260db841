// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Linear layers over fields.

#include <cstdint>
#include <type_traits>
#include <vector>

#include "warprank/core/buffer.hpp"
#include "warprank/engine/cuda/naming.hpp"
#include "warprank/engine/cuda/prepare.cuh"
#include "warprank/engine/cuda/weights_memory.hpp"
#include "warprank/engine/engine.hpp"
#include "warprank/engine/parameter_source.hpp"
#include "warprank/model/op/field_linear.hpp"
#include "warprank/ops/field_linear.cuh"

namespace warprank { inline namespace v0 { namespace cuda_backend {

static_assert(FieldLinear<float16>::max_summed_columns == FieldLinearOp::max_summed_columns);

inline Prepare bind_alone(const FieldLinearOp& op, int n, const BindOptions&, const detail::ParameterSource& source,
                          WeightsMemory& memory) {
  const std::vector<float> weight = source.load(op.name + ".weight");
  const std::vector<float> bias = source.load_if(op.bias, op.name + ".bias");
  const Node& bound = source.graph().node(n);
  const auto fields_of = [&](size_t i) { return source.graph().node(bound.inputs[i]).width / op.dim; };
  const bool has_factors = bound.inputs.size() > 1;
  const FieldLinearShape shape{has_factors ? fields_of(0) : 0, fields_of(has_factors ? 1 : 0), op.out};
  const Buffer<unsigned char> packed = naming(op.name, [&] { return pack_field_linear(shape, weight, bias); });
  return [op, n, has_factors, at = memory.add(packed.data(), packed.size())](const Bindings& bindings,
                                                                             StepMemory& memory) {
    const Node& node = bindings.graph().node(n);
    const Matrix<const float16> first = bindings.halves(node.inputs[0]);
    const Matrix<const float16> none(nullptr, first.rows, 0);
    const FieldLinearLayer layer{
        op.dim,  op.out,   bindings.weights<unsigned char>(at), {op.activation.kind, op.activation.alpha},
        op.kept, op.summed};
    return with_type(bindings.value(n), [&](auto y) {
      using Out = std::remove_pointer_t<decltype(y.data)>;
      return prepare_launch(
          "field_linear",
          FieldLinear<Out>(has_factors ? first : none, has_factors ? bindings.halves(node.inputs[1]) : first, layer, y,
                           bindings.num_rows(node.axis)),
          memory);
    });
  };
}

}}}  // namespace warprank::v0::cuda_backend
