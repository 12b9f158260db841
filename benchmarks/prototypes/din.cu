// SPDX-License-Identifier: Apache-2.0
//
// DIN attention for prototypes of it (resident.cuh).

#include "resident.cuh"
#include "warprank/ops/din_attention.cuh"

extern "C" {

/// Two layers of relu, and a head.
void* lib_make(const void* q, const void* k, void* y, const int64_t* item_offsets, const int64_t* history_offsets,
               int64_t requests, int64_t items, int64_t events, int64_t longest, int64_t dim, const float* weights_0,
               const float* bias_0, int64_t hidden_0, const float* weights_1, const float* bias_1, int64_t hidden_1,
               const float* head, float head_bias, int has_softmax) {
  using namespace warprank;
  DinLayer layers[3];
  layers[0].weight = {weights_0, hidden_0 * 4 * dim}, layers[0].bias = {bias_0, hidden_0};
  layers[1].weight = {weights_1, hidden_0 * hidden_1}, layers[1].bias = {bias_1, hidden_1};
  layers[2].weight = {head, hidden_1}, layers[2].bias = {&head_bias, 1};
  layers[0].activation = layers[1].activation = relu, layers[2].activation = identity;
  const DinWeights network(dim, {layers, 3}, has_softmax != 0 ? Normalization::softmax : Normalization::none);
  DinHistory history;
  history.q = prototypes::halves(q, items, dim), history.k = prototypes::halves(k, events, dim);
  history.y = prototypes::halves(y, items, dim);
  history.item_offsets = item_offsets, history.history_offsets = history_offsets, history.parents.capacity = requests;
  history.network = &network, history.longest_history = longest;
  history.device_weights = prototypes::upload(network.bytes().data(), static_cast<size_t>(network.bytes().size()));
  return prototypes::resident(DinLaunch({&history, 1}));
}
void lib_run(void* op, cudaStream_t stream) { warprank::prototypes::launch<warprank::DinLaunch>(op, stream); }
}
