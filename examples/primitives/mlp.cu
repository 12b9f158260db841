// SPDX-License-Identifier: Apache-2.0

/// A tower of two layers over items in FP16, whose first layer adds what was computed once for each user (late
/// broadcast), in a captured graph.

#include "memory.cuh"
#include "warprank/ops/mlp.cuh"
#include "warprank/ops/resident.hpp"

namespace wr = warprank;

int main() {
  const int64_t users = 2, items = 5, in = 32, hidden = 64;
  const std::vector<wr::float16> x(items * in, wr::to_float16(0.5f));
  const std::vector<float> of_users(users * hidden, 1.0f), w0(hidden * in, 0.25f), w1(hidden, 0.125f);
  auto* const y = allocate<float>(items);

  const auto packed = [](const std::vector<float>& weight, int64_t inputs, int64_t outputs) {
    return on_device(wr::pack_linear<float>(weight, {}, inputs, outputs));
  };
  const wr::MlpLayer layers[] = {{packed(w0, in, hidden), hidden, {wr::ActivationKind::relu}},
                                 {packed(w1, hidden, 1), 1, {wr::ActivationKind::sigmoid}}};
  wr::Mlp tower;
  tower.x = wr::Matrix<const wr::float16>(on_device(x), items, in);
  tower.row_bias.values = wr::Matrix<const float>(on_device(of_users), users, hidden);
  tower.row_bias.offsets = on_device(std::vector<int64_t>{0, 2, 5});  // items 0 and 1 are of user 0
  tower.layers = layers;
  tower.y = wr::Matrix<float>(y, items, 1);

  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  const wr::Resident mlp(wr::MlpLaunch({&tower, 1}), stream);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t of_every_batch = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  mlp.launch(stream);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&of_every_batch, graph, 0));
  for (int batch = 0; batch < 3; ++batch) check(cudaGraphLaunch(of_every_batch, stream));

  int failures = 0;
  const double h = 0.5 * 0.25 * in + 1, score = 1 / (1 + std::exp(-h * 0.125 * hidden));
  expect_near("the score of item 4", on_host(y, items, stream)[4], score, 1e-5, failures);
  return failures;
}
