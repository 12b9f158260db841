// SPDX-License-Identifier: Apache-2.0
//
// Stacks of layers and single layers for prototypes of them (resident.cuh).

#include "resident.cuh"
#include "warprank/ops/linear.cuh"
#include "warprank/ops/mlp.cuh"

namespace {

using namespace warprank;

/// [out, in] and [out].
const void* pack(const float* weights, const float* bias, int64_t in, int64_t out) {
  const auto packed = pack_linear(Span<const float>(weights, in * out), {bias, out}, in, out);
  return prototypes::upload(packed.data(), static_cast<size_t>(packed.size()));
}

}  // namespace

extern "C" {

/// relu, but of the last layer.
void* lib_mlp(const float* const* weights, const float* const* biases, const int* widths, int num_layers, const void* x,
              int rows, int in, float* y) {
  std::vector<MlpLayer> layers(static_cast<size_t>(num_layers));
  for (int i = 0; i < num_layers; ++i) {
    layers[static_cast<size_t>(i)].weights = pack(weights[i], biases[i], widths[i], widths[i + 1]);
    layers[static_cast<size_t>(i)].out = widths[i + 1];
    layers[static_cast<size_t>(i)].activation.kind = i + 1 < num_layers ? relu.kind : identity.kind;
  }
  Mlp stack;
  stack.x = prototypes::halves(x, rows, in), stack.layers = {layers.data(), num_layers};
  stack.y = Matrix<float>(y, rows, widths[num_layers]);
  return prototypes::resident(MlpLaunch({&stack, 1}));
}
void lib_mlp_run(void* op, cudaStream_t stream) { prototypes::launch<MlpLaunch>(op, stream); }

void* lib_linear(const float* weights, const float* bias, int in, int out, const void* x, int rows, void* y) {
  LinearLayer layer;
  layer.weights = pack(weights, bias, in, out);
  layer.x = prototypes::halves(x, rows, in), layer.activation.kind = identity.kind;
  layer.y = prototypes::halves(y, rows, out);
  return prototypes::resident(LinearLaunch({&layer, 1}));
}
void lib_linear_run(void* op, cudaStream_t stream) { prototypes::launch<LinearLaunch>(op, stream); }
}
