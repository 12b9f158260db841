// SPDX-License-Identifier: Apache-2.0

// The factorisation machine, against a copy of as many bytes. Bytes are counted once for each input and output.

#include <cstdint>
#include <random>
#include <vector>

#include "measure_cuda.cuh"
#include "warprank/core/dtype.hpp"
#include "warprank/ops/fm.cuh"

namespace {

using warprank::half;
using warprank::Matrix;

/// The fields of one user, those of `items` rows, and y [items, 1], as halves.
void fm(benchmark::State& state) {
  constexpr int64_t user_fields = 24, item_fields = 36;
  const int64_t items = state.range(0), dim = state.range(1);
  const int64_t user_size = user_fields * dim, item_size = items * item_fields * dim;
  const int64_t bytes = (user_size + item_size + items) * static_cast<int64_t>(sizeof(half));
  const int64_t num_sets = warprank::bench::num_cold_sets(bytes);

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<half> values(static_cast<size_t>(num_sets * (user_size + item_size)));
  for (half& value : values) value = warprank::to_half(normal(random));
  const auto inputs = warprank::bench::upload(values);
  const auto outputs = warprank::bench::allocate<half>(num_sets * items);
  const auto offsets = warprank::bench::upload<int64_t>({0, items});

  std::vector<warprank::Fm<half, half>> ops;
  for (int64_t i = 0; i < num_sets; ++i) {
    const half* user = &inputs[i * (user_size + item_size)];
    const std::vector<warprank::AxisInput<half>> both = {
        {Matrix<const half>(user, 1, user_size), offsets.get()},
        {Matrix<const half>(user + user_size, items, item_fields * dim)}};
    ops.emplace_back(both, dim, Matrix<half>(&outputs[i * items], items, 1));
  }
  warprank::bench::measure(state, num_sets, bytes, [&](int64_t i, warprank::device::Stream stream) {
    ops[static_cast<size_t>(i)].launch(stream);
  });
}
BENCHMARK(fm)->ArgNames({"items", "dim"})->Args({100, 16})->Args({500, 16})->Args({4096, 64})->UseManualTime();

}  // namespace
