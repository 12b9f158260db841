// SPDX-License-Identifier: Apache-2.0

// Token mixing that norms its input, as between two layers of RankMixer, against a launch for the norm of each token
// and one that mixes the normed tokens.

#include <cstdint>
#include <string>
#include <vector>

#include "dense_data.hpp"
#include "measure_cuda.cuh"
#include "reference/mix_tokens.hpp"
#include "row_launches.cuh"
#include "warprank/ops/mix_tokens.cuh"

namespace warprank::bench {
namespace {

void mix_tokens(Run& run, int64_t rows, int64_t tokens, int64_t columns) {
  const int64_t cols = tokens * columns;
  const std::vector<float16> values = random_halves(rows * cols, 1);
  const std::vector<float> vectors = to_floats(random_halves(4 * columns, 2));
  const Matrix<const float16> x(run.upload(values), rows, cols);
  const auto result = [&] { return Matrix<float16>(run.allocate<float16>(rows * cols), rows, cols); };
  const Matrix<float16> y = result(), normed = result(), unfused = result();
  const float* const on_device = run.upload(vectors);
  const auto norm_of = [&](const float* from, int64_t first) {
    return LayerNormOfRow{1e-5f, from + first * columns, from + (first + 1) * columns};
  };
  const LayerNormOfRow norm = norm_of(on_device, 0), input_norm = norm_of(on_device, 2);

  std::vector<RowProgram> programs(static_cast<size_t>(tokens));
  std::vector<AxisInput<void>> inputs(programs.size());
  for (size_t t = 0; t < programs.size(); ++t) {
    const int64_t first = static_cast<int64_t>(t) * columns;
    inputs[t] = {x.columns(first, columns)};
    programs[t].inputs = {&inputs[t], 1};
    programs[t].step = input_norm;
    programs[t].y = normed.columns(first, columns);
  }
  const Queue together = queue_launch(run, MixTokens<float16>(x, tokens, y, nullptr, {norm, input_norm}));
  const Queue one_by_one =
      in_sequence({queue_row_programs(run, programs),
                   queue_launch(run, MixTokens<float16>(normed, tokens, unfused, nullptr, {norm, {}}))});

  const std::vector<int64_t> some = some_rows(rows);
  const std::vector<float> of_x = select_rows(values, cols, some);
  const auto vector = [&](int64_t i) { return Span<const float>(vectors.data() + i * columns, columns); };
  const auto check = [&](Matrix<float16> to) {
    return [&, to] {
      const std::vector<float16> got = run.read(to.data, rows * cols);
      const reference::TokenNormOf of_sums{1e-5f, vector(0), vector(1)}, of_input{1e-5f, vector(2), vector(3)};
      expect_within<float16>("mix_tokens",
                             reference::mix_tokens({of_x.data(), static_cast<int64_t>(some.size()), cols}, tokens,
                                                   of_sums, &of_input, true),
                             select_rows(got, cols, some), 1);
    };
  };
  run.measure({4.0 * static_cast<double>(rows * cols)}, {together, check(y)},
              {{"unfused", {one_by_one, check(unfused)}}});
}

}  // namespace

void add_benchmarks() {
  for (const auto& [tokens, columns] : {std::pair{int64_t{16}, int64_t{64}}, std::pair{int64_t{16}, int64_t{768}}})
    for (const int64_t rows : on_gpu ? std::vector<int64_t>{100, 500, 1600} : std::vector<int64_t>{5})
      add("mix_tokens/tokens:" + std::to_string(tokens) + "/columns:" + std::to_string(columns) +
              "/rows:" + std::to_string(rows),
          [rows, tokens = tokens, columns = columns](Run& run) { mix_tokens(run, rows, tokens, columns); });
}

}  // namespace warprank::bench
