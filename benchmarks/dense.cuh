// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Dense layers for benchmarks on a GPU: random ones, launches of the library's, and chains of cuBLASLt as a baseline.

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cublas.cuh"
#include "dense_data.hpp"
#include "measure_cuda.cuh"
#include "warprank/core/dtype.hpp"
#include "warprank/ops/linear.cuh"

namespace warprank::bench {

/// relu, or nothing, of x W^T + b; FP16 numbers that keep activations near 1.
struct DenseLayer {
  DenseLayer(int64_t in, int64_t out, bool is_relu, uint64_t seed)
      : in(in),
        out(out),
        is_relu(is_relu),
        weight(to_floats(random_halves(in * out, seed, 2 / std::sqrt(static_cast<float>(in))))),
        bias(to_floats(random_halves(out, seed + 1, 0.5f))) {}
  /// Of these weights [out, in] and biases [out] or none, FP16 numbers.
  DenseLayer(std::vector<float> weights, std::vector<float> biases, int64_t in, bool is_relu)
      : in(in),
        out(static_cast<int64_t>(weights.size()) / in),
        is_relu(is_relu),
        weight(std::move(weights)),
        bias(std::move(biases)) {}

  double weight_bytes() const { return 2.0 * static_cast<double>(in * out); }
  double flops(int64_t rows) const { return 2.0 * static_cast<double>(rows * in * out); }
  Activation activation() const { return is_relu ? relu : identity; }

  int64_t in, out;
  bool is_relu;
  std::vector<float> weight, bias;  // [out, in]; [out] or none
};

/// Layers of these widths, with ReLU but for the last.
inline std::vector<DenseLayer> random_stack(const std::vector<int64_t>& widths, uint64_t seed = 1) {
  std::vector<DenseLayer> layers;
  for (size_t i = 0; i + 1 < widths.size(); ++i)
    layers.emplace_back(widths[i], widths[i + 1], i + 2 < widths.size(), seed + 2 * i);
  return layers;
}

inline const unsigned char* upload_packed(Memory& memory, const DenseLayer& layer, DType weight_type = DType::f16) {
  const auto packed = pack_linear(weight_type, layer.weight, layer.bias, layer.in, layer.out);
  return memory.upload(packed.data(), packed.size());
}

inline LinearLayer make_linear(Memory& memory, const DenseLayer& layer, Matrix<const float16> x, FloatMatrix<void> y,
                               DType weight_type = DType::f16) {
  LinearLayer to;
  to.weights = upload_packed(memory, layer, weight_type);
  to.weight_type = weight_type;
  to.x = x;
  to.activation.kind = layer.activation().kind;
  to.y = y;
  return to;
}

/// One launch of the library's.
inline Queue queue_linear(Memory& memory, const std::vector<LinearLayer>& layers) {
  return queue_launch(memory, LinearLaunch(layers));
}

#if defined(__CUDACC__) && defined(WARPRANK_BENCH_CUBLASLT)
/// What single products are made by, for the names of baselines.
inline const std::string product_maker = "cublaslt";

/// One layer, by cuBLASLt.
inline Queue queue_product(Memory& memory, const DenseLayer& layer, Matrix<const float16> x, FloatMatrix<void> y) {
  const auto to_halves = [](const std::vector<float>& values) {
    std::vector<float16> halves;
    for (const float value : values) halves.push_back(to_float16(value));
    return halves;
  };
  const void* bias = nullptr;
  if (!layer.bias.empty() && y.type == DType::f32) bias = memory.upload(layer.bias);
  if (!layer.bias.empty() && y.type == DType::f16) bias = memory.upload(to_halves(layer.bias));
  const auto product =
      std::make_shared<CublasProduct>(x, memory.upload(to_halves(layer.weight)), bias, layer.is_relu, y);
  return [=](device::Stream stream) { product->launch(stream); };
}
#else
inline const std::string product_maker = "single_layers";

/// One layer; without cuBLASLt, by the library.
inline Queue queue_product(Memory& memory, const DenseLayer& layer, Matrix<const float16> x, FloatMatrix<void> y) {
  return queue_linear(memory, {make_linear(memory, layer, x, y)});
}
#endif

/// Layers one after another, each a launch, by `queue_layer(memory, layer, x, y)`.
template <class QueueLayer>
Queue queue_chain(Memory& memory, const std::vector<DenseLayer>& layers, Matrix<const float16> x, FloatMatrix<void> y,
                  QueueLayer queue_layer) {
  std::vector<Queue> queues;
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool is_last = i + 1 == layers.size();
    Matrix<float16> h;
    if (!is_last) h = {memory.allocate<float16>(x.rows * layers[i].out), x.rows, layers[i].out};
    queues.push_back(queue_layer(memory, layers[i], x, is_last ? y : FloatMatrix<void>(h)));
    x = h;
  }
  return in_sequence(std::move(queues));
}

/// What a chain gives for some rows of x, and how far a kernel may be from it.
inline Activations propagate(const std::vector<DenseLayer>& layers, Activations h) {
  for (size_t i = 0; i < layers.size(); ++i)
    h = propagate(h, layers[i].weight, layers[i].bias, layers[i].is_relu, i + 1 < layers.size());
  return h;
}

}  // namespace warprank::bench
