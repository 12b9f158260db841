// SPDX-License-Identifier: Apache-2.0

// The ops that are bound by memory rather than arithmetic, against a copy of as many bytes, on one thread. Bytes are
// counted once for each input and output, so an op that keeps its data in the caches can exceed its copy.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "measure.hpp"
#include "row_cases.hpp"
#include "warprank/ops/host/concat.hpp"
#include "warprank/ops/host/dot.hpp"
#include "warprank/ops/host/elementwise.hpp"
#include "warprank/ops/host/fm.hpp"
#include "warprank/ops/host/layer_norm.hpp"
#include "warprank/ops/host/mix.hpp"
#include "warprank/ops/host/reduce.hpp"
#include "warprank/ops/host/segment_reduce.hpp"
#include "warprank/ops/host/softmax.hpp"

namespace warprank { namespace {

using bench::measure;

struct OwnedMatrix {
  OwnedMatrix(int64_t rows, int64_t cols) : rows(rows), cols(cols), values(bench::random_values(rows * cols, 1)) {}
  Matrix<float> view() { return {values.data(), rows, cols}; }
  double bytes() const { return 4.0 * static_cast<double>(rows * cols); }
  int64_t rows, cols;
  std::vector<float> values;
};

void elementwise(benchmark::State& state, const ElementwiseProgram& program) {
  const int64_t rows = state.range(0), cols = state.range(1);
  std::vector<OwnedMatrix> inputs(static_cast<size_t>(program.num_inputs), OwnedMatrix(rows, cols));
  std::vector<SegmentedInput> views;
  for (OwnedMatrix& input : inputs) views.push_back({input.view()});
  OwnedMatrix learned(1, cols), y(rows, cols);
  const std::vector<const float*> vectors(static_cast<size_t>(program.num_vectors), learned.values.data());
  std::vector<float> workspace(static_cast<size_t>(host_ops::elementwise_workspace(program)));
  measure(state, y.bytes() * (program.num_inputs + 1), 0,
          [&] { host_ops::elementwise(program, views, vectors, y.view(), workspace); });
}

/// The programs of row_cases.hpp, rows and columns of which a launch on a GPU has as many.
const ElementwiseProgram& program_named(const std::string& name) {
  static const std::vector<bench::NamedProgram> all = bench::elementwise_programs();
  return std::find_if(all.begin(), all.end(), [&](const auto& named) { return named.name == name; })->program;
}
BENCHMARK_CAPTURE(elementwise, product, program_named("product"))
    ->UseManualTime()
    ->Iterations(40)
    ->ArgsProduct({{1, 1000}, {1}})
    ->ArgsProduct({{200}, {16, 17, 256, 600}});
BENCHMARK_CAPTURE(elementwise, sigmoid, program_named("sigmoid"))
    ->UseManualTime()
    ->Iterations(40)
    ->ArgsProduct({{1000}, {1}})
    ->ArgsProduct({{200}, {256}});
BENCHMARK_CAPTURE(elementwise, prelu, program_named("prelu"))
    ->UseManualTime()
    ->Iterations(40)
    ->ArgsProduct({{200}, {64, 256}});
BENCHMARK_CAPTURE(elementwise, dice, program_named("dice"))
    ->UseManualTime()
    ->Iterations(40)
    ->ArgsProduct({{200}, {64, 256}});

/// One user and N items, or N items alone.
struct UserAndItems {
  UserAndItems(int64_t rows, int64_t user_cols, int64_t item_cols)
      : user(1, user_cols), item(rows, item_cols), offsets{0, rows} {
    if (user_cols > 0) inputs.push_back({user.view(), {offsets, 1}});
    inputs.push_back({item.view()});
  }
  OwnedMatrix user, item;
  int64_t offsets[2];
  std::vector<SegmentedInput> inputs;
};

/// Arguments: rows, user fields, item fields, dim.
void fm(benchmark::State& state) {
  const int64_t rows = state.range(0), dim = state.range(3);
  UserAndItems x(rows, state.range(1) * dim, state.range(2) * dim);
  OwnedMatrix y(rows, 1);
  std::vector<float> workspace(static_cast<size_t>(host_ops::fm_workspace(dim)));
  measure(state, x.user.bytes() + x.item.bytes() + y.bytes(), 0,
          [&] { host_ops::fm(x.inputs, dim, true, y.view(), workspace); });
}
BENCHMARK(fm)
    ->UseManualTime()
    ->Iterations(40)
    ->Args({200, 24, 36, 16})
    ->Args({200, 0, 60, 16})
    ->Args({200, 24, 36, 10})
    ->Args({200, 0, 26, 64});

/// Arguments: rows, user fields, item fields, dim. Floating-point operations of all pairs of a row, user pairs
/// included.
void dot(benchmark::State& state) {
  const int64_t rows = state.range(0), dim = state.range(3), fields = state.range(1) + state.range(2);
  UserAndItems x(rows, state.range(1) * dim, state.range(2) * dim);
  OwnedMatrix y(rows, num_dot_pairs(fields, {}));
  std::vector<float> workspace(static_cast<size_t>(host_ops::dot_workspace(fields, dim, {})));
  measure(state, x.user.bytes() + x.item.bytes() + y.bytes(), 2.0 * static_cast<double>(y.rows * y.cols * dim),
          [&] { host_ops::dot(x.inputs, dim, {}, y.view(), workspace); });
}
BENCHMARK(dot)
    ->UseManualTime()
    ->Iterations(40)
    ->Args({200, 0, 27, 128})
    ->Args({200, 13, 14, 128})
    ->Args({200, 0, 27, 16})
    ->Args({200, 0, 8, 32})
    ->Args({200, 0, 60, 16});

/// Arguments: rows, experts, dim.
void mix(benchmark::State& state) {
  const int64_t rows = state.range(0), num_experts = state.range(1), dim = state.range(2);
  OwnedMatrix experts(rows, num_experts * dim), gate(rows, num_experts), y(rows, dim);
  std::vector<float> workspace(static_cast<size_t>(host_ops::mix_workspace(num_experts)));
  measure(state, experts.bytes() + gate.bytes() + y.bytes(), 0,
          [&] { host_ops::mix({experts.view()}, {gate.view()}, Normalization::softmax, y.view(), workspace); });
}
BENCHMARK(mix)->UseManualTime()->Iterations(40)->Args({200, 4, 64})->Args({200, 5, 256});

void softmax(benchmark::State& state) {
  OwnedMatrix x(state.range(0), state.range(1)), y = x;
  measure(state, x.bytes() + y.bytes(), 0, [&] { host_ops::softmax(x.view(), y.view()); });
}
BENCHMARK(softmax)->UseManualTime()->Iterations(40)->ArgsProduct({{200}, {4, 50, 256}});

void layer_norm(benchmark::State& state) {
  OwnedMatrix x(state.range(0), state.range(1)), y = x;
  const std::vector<float> learned = bench::random_values(x.cols, 2);
  measure(state, x.bytes() + y.bytes(), 0, [&] { host_ops::layer_norm(x.view(), 1e-5f, learned, learned, y.view()); });
}
BENCHMARK(layer_norm)->UseManualTime()->Iterations(40)->ArgsProduct({{200}, {64, 256}});

void reduce(benchmark::State& state) {
  OwnedMatrix x(state.range(0), state.range(1)), y(x.rows, 1);
  measure(state, x.bytes() + y.bytes(), 0, [&] { host_ops::reduce(x.view(), Pooling::mean, y.view()); });
}
BENCHMARK(reduce)->UseManualTime()->Iterations(40)->ArgsProduct({{200}, {4, 50, 256}});

/// Arguments: segments, rows of each, columns.
void segment_reduce(benchmark::State& state) {
  std::vector<int64_t> offsets(static_cast<size_t>(state.range(0)) + 1);
  for (size_t s = 1; s < offsets.size(); ++s) offsets[s] = offsets[s - 1] + state.range(1);
  OwnedMatrix x(offsets.back(), state.range(2)), y(state.range(0), x.cols);
  measure(state, x.bytes() + y.bytes(), 0, [&] {
    host_ops::segment_reduce(x.view(), {offsets.data(), y.rows}, Pooling::mean, y.view());
  });
}
BENCHMARK(segment_reduce)->UseManualTime()->Iterations(40)->Args({16, 100, 64})->Args({200, 5, 8})->Args({16, 100, 17});

void expand(benchmark::State& state) {
  UserAndItems x(state.range(0), state.range(1), 0);
  OwnedMatrix y(state.range(0), state.range(1));
  measure(state, x.user.bytes() + y.bytes(), 0, [&] { host_ops::expand(x.user.view(), {x.offsets, 1}, y.view()); });
}
BENCHMARK(expand)->UseManualTime()->Iterations(40)->ArgsProduct({{200}, {16, 256}});

/// Arguments: rows, parts, columns of each.
void concat(benchmark::State& state) {
  std::vector<OwnedMatrix> parts(static_cast<size_t>(state.range(1)), OwnedMatrix(state.range(0), state.range(2)));
  std::vector<SegmentedInput> views;
  for (OwnedMatrix& part : parts) views.push_back({part.view()});
  OwnedMatrix y(state.range(0), state.range(1) * state.range(2));
  measure(state, 2 * y.bytes(), 0, [&] { host_ops::concat(views, y.view()); });
}
BENCHMARK(concat)->UseManualTime()->Iterations(40)->ArgsProduct({{200}, {60}, {1, 4, 7, 16}})->Args({200, 4, 150});

}}  // namespace warprank
