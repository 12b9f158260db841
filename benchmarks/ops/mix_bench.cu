// SPDX-License-Identifier: Apache-2.0

// Mixtures of experts for two tasks in one launch, against a softmax of the gates and a weighted sum as launches of
// their own for each task.

#include <cstdint>
#include <string>
#include <vector>

#include "dense_data.hpp"
#include "measure_cuda.cuh"
#include "reference/mix.hpp"
#include "row_launches.cuh"
#include "warprank/ops/mix.cuh"

namespace warprank::bench {
namespace {

constexpr int num_tasks = 2;

/// sum_e weights[e] E[e]: inputs are the experts' columns, then the columns of the weights.
ElementwiseProgram weighted_sum(int num_experts) {
  ElementwiseProgram program;
  program.num_inputs = 2 * num_experts;
  int sum = -1;
  for (int e = 0; e < num_experts; ++e) {
    program.instructions.push_back({ElementwiseFunction::mul, e, num_experts + e});
    const int product = program.num_registers() - 1;
    if (e > 0) program.instructions.push_back({ElementwiseFunction::add, sum, product});
    sum = program.num_registers() - 1;
  }
  return program;
}

void mix(Run& run, int64_t rows, int num_experts, int64_t dim) {
  const std::vector<float16> experts = random_halves(rows * num_experts * dim, 1),
                             gates = random_halves(rows * num_tasks * num_experts, 2, 3);
  const Matrix<const float16> x(run.upload(experts), rows, num_experts * dim),
      logits(run.upload(gates), rows, num_tasks * num_experts);
  const auto result = [&] {
    return Matrix<float16>(run.allocate<float16>(rows * num_tasks * dim), rows, num_tasks * dim);
  };
  const Matrix<float16> y = result(), unfused = result();
  const Matrix<float> weights(run.allocate<float>(rows * num_tasks * num_experts), rows, num_tasks * num_experts);

  std::vector<MixTask<float16, float16>> tasks;
  const ElementwiseProgram sum = weighted_sum(num_experts);
  std::vector<RowProgram> programs(2 * num_tasks);
  std::vector<AxisInput<void>> softmax_inputs(num_tasks);
  std::vector<std::vector<AxisInput<void>>> sum_inputs(num_tasks);
  for (int t = 0; t < num_tasks; ++t) {
    const auto gate = logits.columns(t * num_experts, num_experts);
    tasks.push_back({{x}, {gate}, y.columns(t * dim, dim)});
    softmax_inputs[t] = {gate};
    for (int e = 0; e < num_experts; ++e) sum_inputs[t].push_back({x.columns(e * dim, dim)});
    for (int e = 0; e < num_experts; ++e)
      sum_inputs[t].push_back({Matrix<const float>(weights.columns(t * num_experts + e, 1))});
    RowProgram &softmax = programs[2 * t], &weighted = programs[2 * t + 1];
    softmax.inputs = {&softmax_inputs[t], 1};
    softmax.step = SoftmaxOfRow{};
    softmax.y = weights.columns(t * num_experts, num_experts);
    weighted.program = &sum;
    weighted.inputs = sum_inputs[t];
    weighted.y = unfused.columns(t * dim, dim);
  }
  const Mix<float16, float16> together(tasks);

  const std::vector<int64_t> some = some_rows(rows);
  const auto count = static_cast<int64_t>(some.size());
  const std::vector<float> of_experts = select_rows(experts, x.cols, some),
                           of_gates = select_rows(gates, logits.cols, some);
  const auto check = [&](Matrix<float16> to) {
    return [&, to] {
      const std::vector<float16> got = run.read(to.data, rows * num_tasks * dim);
      const std::vector<float> rows_of_got = select_rows(got, num_tasks * dim, some);
      for (int t = 0; t < num_tasks; ++t) {
        const Matrix<const float> all(rows_of_got.data(), count, num_tasks * dim);
        std::vector<float> of_task;
        for (int64_t r = 0; r < count; ++r)
          of_task.insert(of_task.end(), all.row(r) + t * dim, all.row(r) + (t + 1) * dim);
        const Matrix<const float> gate(of_gates.data() + t * num_experts, count, num_experts, num_tasks * num_experts);
        expect_within<float16>(
            "mix", reference::mix({{of_experts.data(), count, x.cols}}, {gate}, Normalization::softmax, count, dim),
            of_task, 2);
      }
    };
  };
  const double bytes =
      2.0 * static_cast<double>(experts.size() + gates.size() + static_cast<size_t>(rows * num_tasks * dim));
  run.measure({bytes}, {[&](device::Stream stream) { together.launch({}, stream); }, check(y)},
              {{"unfused", {queue_one_by_one(run, programs), check(unfused)}}});
}

}  // namespace

void add_benchmarks() {
  for (const auto& [experts, dim] : {std::pair{4, int64_t{64}}, std::pair{5, int64_t{256}}})
    for (const int64_t rows : on_gpu ? std::vector<int64_t>{100, 500, 1600, 6400} : std::vector<int64_t>{5, 33})
      add("mix/experts:" + std::to_string(experts) + "/dim:" + std::to_string(dim) + "/rows:" + std::to_string(rows),
          [rows, experts = experts, dim = dim](Run& run) { mix(run, rows, experts, dim); });
}

}  // namespace warprank::bench
