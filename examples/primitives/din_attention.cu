// SPDX-License-Identifier: Apache-2.0

/// DIN attention pooling: the items of two users over their histories, one of which is empty.

#include "memory.cuh"
#include "warprank/ops/din_attention.cuh"
#include "warprank/ops/resident.hpp"

namespace wr = warprank;

int main() {
  const int64_t dim = 16, hidden = 8, items = 3, events = 4;
  // score = 0.05 (sum q + sum k + sum (q - k) + sum q k), by a network whose weights are all alike
  const std::vector<float> w0(hidden * 4 * dim, 0.05f), w1(hidden, 1.0f / hidden), no_bias;
  const std::vector<wr::DinLayer> layers = {{w0, no_bias, wr::relu, {}, {}, {}}, {w1, no_bias, {}, {}, {}, {}}};
  const wr::DinWeights network(dim, layers, wr::Normalization::softmax);

  std::vector<wr::float16> q(items * dim, wr::to_float16(1.0f)), k(events * dim, wr::to_float16(0.5f));
  for (int64_t c = 0; c < dim; ++c) k[static_cast<size_t>(c)] = wr::to_float16(1.0f);  // event 0
  auto* const y = allocate<float>(items * dim);
  wr::DinHistory history;
  history.q = wr::Matrix<const wr::float16>(on_device(q), items, dim);
  history.k = wr::Matrix<const wr::float16>(on_device(k), events, dim);
  history.y = wr::Matrix<float>(y, items, dim);
  history.item_offsets = on_device(std::vector<int64_t>{0, 2, 3});     // items 0 and 1 are of user 0
  history.history_offsets = on_device(std::vector<int64_t>{0, 4, 4});  // all events as well
  history.parents.capacity = 2;
  history.network = &network;
  history.device_weights = on_device(network.bytes());

  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  const wr::Resident attention(wr::DinLaunch({&history, 1}), stream);
  attention.launch(stream);

  int failures = 0;
  const double first = std::exp(0.05 * dim * (1 + 1 + 0 + 1)), other = std::exp(0.05 * dim * (1 + 0.5 + 0.5 + 0.5));
  const double expected = (first + 3 * other * 0.5) / (first + 3 * other);
  const std::vector<float> got = on_host(y, items * dim, stream);
  expect_near("item 1", got[dim], expected, 2e-3, failures);
  expect_near("item 2, of the user without a history", got[2 * dim], 0, 0, failures);
  return failures;
}
