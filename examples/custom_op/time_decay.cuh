// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The op of time_decay.hpp on a GPU: a functor, and the kernel of ops/elementwise.cuh, which finds the user of an
/// item.

#include <cmath>

#include "time_decay.hpp"
#include "warprank/cuda.hpp"
#include "warprank/ops/elementwise.cuh"

namespace time_decay {

struct Decay {
  WARPRANK_DEVICE float operator()(float x, float hours, float half_life) const {
    return x * std::exp2(-hours / half_life);
  }
};

template <class Out>
void launch(const warprank::CudaCustomCall& call) {
  const auto floats = [](const warprank::AxisInput<void>& input) -> warprank::AxisInput<float> {
    const auto& m = input.values;  // what a custom op reads is FP32
    return {{static_cast<const float*>(m.data), m.rows, m.cols, m.stride}, input.offsets, input.num_segments};
  };
  const auto& y = call.output;
  const warprank::AxisInput<float> inputs[] = {floats(call.inputs[0]), floats(call.inputs[1]), floats(call.inputs[2])};
  const warprank::Elementwise op(Decay{}, inputs,
                                 warprank::Matrix<Out>(static_cast<Out*>(y.data), y.rows, y.cols, y.stride),
                                 warprank::EachElement{}, call.num_rows);
  op.launch({}, reinterpret_cast<warprank::device::Stream>(call.stream));
}

/// For BindOptions::cuda_custom.
inline void on_cuda(const warprank::CudaCustomCall& call) {
  call.output.type == warprank::DType::f16 ? launch<warprank::float16>(call) : launch<float>(call);
}

}  // namespace time_decay
