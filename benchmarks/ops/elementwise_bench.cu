// SPDX-License-Identifier: Apache-2.0

// Elementwise functions that are compiled, against the same as row programs, which are interpreted.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "dense_data.hpp"
#include "measure_cuda.cuh"
#include "reference/elementwise.hpp"
#include "row_cases.hpp"
#include "row_launches.cuh"
#include "warprank/ops/elementwise.cuh"

namespace warprank::bench {
namespace {

/// x p + alpha x (1 - p), p = sigmoid(x scale + shift), with scale, shift and alpha by columns: Dice.
struct DiceFunction {
  WARPRANK_DEVICE float operator()(float x, float scale, float shift, float alpha) const {
    const float p = detail::sigmoid_of(x * scale + shift);
    return x * (p + alpha * (1 - p));
  }
};
struct Product {
  WARPRANK_DEVICE float operator()(float a, float b) const { return a * b; }
};

/// `compiled` makes the launch of inputs and y.
template <int NumInputs, class Function>
void elementwise(Run& run, const std::string& name, Function function, int64_t rows, int64_t cols) {
  ElementwiseProgram program;
  for (const NamedProgram& named : elementwise_programs())
    if (named.name == name) program = named.program;
  std::vector<std::vector<float16>> values;
  AxisInput<float16> inputs[NumInputs];
  std::vector<const float*> vectors, on_host;
  std::vector<std::vector<float>> learned;
  std::vector<AxisInput<void>> row_inputs;
  for (int i = 0; i < NumInputs; ++i) {
    const int64_t rows_of_input = i < program.num_inputs ? rows : 1;
    values.push_back(random_halves(rows_of_input * cols, static_cast<uint64_t>(i) + 1));
    inputs[i] = {Matrix<const float16>(run.upload(values.back()), rows_of_input, cols)};
    if (i < program.num_inputs) {
      row_inputs.push_back({inputs[i].values});
    } else {
      learned.push_back(to_floats(values.back()));
      vectors.push_back(run.upload(learned.back()));
    }
  }
  for (const auto& vector : learned) on_host.push_back(vector.data());
  const auto result = [&] { return Matrix<float16>(run.allocate<float16>(rows * cols), rows, cols); };
  const Matrix<float16> y = result(), interpreted = result();
  const Elementwise compiled(function, inputs, y);
  RowProgram as_program;
  as_program.program = &program, as_program.inputs = row_inputs, as_program.vectors = vectors;
  as_program.y = interpreted;

  const std::vector<int64_t> some = some_rows(rows);
  const auto count = static_cast<int64_t>(some.size());
  std::vector<std::vector<float>> selected;
  std::vector<SegmentedInput> views;
  for (int i = 0; i < program.num_inputs; ++i)
    selected.push_back(select_rows(values[static_cast<size_t>(i)], cols, some));
  for (const auto& of_input : selected) views.push_back({{of_input.data(), count, cols}});
  const auto expected = reference::elementwise(program, views, on_host, count, cols);
  const auto check = [&](Matrix<float16> to) {
    return [&, to] {
      expect_within<float16>("elementwise", expected, select_rows(run.read(to.data, rows * cols), cols, some), 2);
    };
  };
  const double bytes = 2.0 * static_cast<double>((program.num_inputs + 1) * rows * cols + program.num_vectors * cols);
  run.measure({bytes}, {[&](device::Stream stream) { compiled.launch({}, stream); }, check(y)},
              {{"interpreted", {queue_row_programs(run, {as_program}), check(interpreted)}}});
}

}  // namespace

void add_benchmarks() {
  for (const int64_t rows : on_gpu ? std::vector<int64_t>{100, 1000, 6400} : std::vector<int64_t>{7})
    for (const int64_t cols : {64, 256}) {
      const std::string shape = "/rows:" + std::to_string(rows) + "/cols:" + std::to_string(cols);
      add("elementwise/product" + shape, [=](Run& run) { elementwise<2>(run, "product", Product{}, rows, cols); });
      add("elementwise/dice" + shape, [=](Run& run) { elementwise<4>(run, "dice", DiceFunction{}, rows, cols); });
    }
}

}  // namespace warprank::bench
