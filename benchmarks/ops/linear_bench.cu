// SPDX-License-Identifier: Apache-2.0

// Single linear layers with ReLU against cuBLASLt: first layers of the reference models, and square ones; and with
// weights in INT8 against those in FP16.

#include <cstdint>
#include <string>
#include <vector>

#include "dense.cuh"

namespace warprank::bench {
namespace {

void linear(Run& run, int64_t rows, int64_t in, int64_t out) {
  const DenseLayer layer(in, out, true, 1);
  const std::vector<float16> values = random_halves(rows * in, 3);
  const Matrix<const float16> x(run.upload(values), rows, in);
  const Matrix<float16> y(run.allocate<float16>(rows * out), rows, out),
      by_cublas(run.allocate<float16>(rows * out), rows, out);

  const std::vector<int64_t> some = some_rows(rows);
  const auto count = static_cast<int64_t>(some.size());
  const Activations expected = propagate({layer}, {count, in, select_rows(values, in, some)});
  const auto check = [&](Matrix<float16> result) {
    return [&, result] {
      expect_within<float16>("linear", expected.of, select_rows(run.read(result.data, rows * out), out, some), 1);
    };
  };
  const double bytes = 2.0 * static_cast<double>(rows * (in + out)) + layer.weight_bytes();
  run.measure({bytes, layer.flops(rows)}, {queue_linear(run, {make_linear(run, layer, x, y)}), check(y)},
              {{product_maker, {queue_product(run, layer, x, by_cublas), check(by_cublas)}}});
}

/// What weights [out, in] in INT8 stand for.
std::vector<float> through_int8(const std::vector<float>& weight, int64_t in) {
  std::vector<float> rounded;
  for (size_t n = 0; n < weight.size(); n += static_cast<size_t>(in)) {
    const float scale = int8_scale({weight.data() + n, in});
    for (int64_t k = 0; k < in; ++k)
      rounded.push_back(static_cast<float>(to_int8(weight[n + static_cast<size_t>(k)], scale)) * scale);
  }
  return rounded;
}

void int8_linear(Run& run, int64_t rows, int64_t in, int64_t out) {
  const DenseLayer halves(in, out, true, 1);
  const DenseLayer bytes(through_int8(halves.weight, in), halves.bias, in, true);
  const std::vector<float16> values = random_halves(rows * in, 3);
  const Matrix<const float16> x(run.upload(values), rows, in);
  const Matrix<float16> y(run.allocate<float16>(rows * out), rows, out),
      by_halves(run.allocate<float16>(rows * out), rows, out);

  const std::vector<int64_t> some = some_rows(rows);
  const Activations inputs{static_cast<int64_t>(some.size()), in, select_rows(values, in, some)};
  const auto check = [&](const DenseLayer& layer, Matrix<float16> result) {
    return [&run, &some, out, result, expected = propagate({layer}, inputs)] {
      expect_within<float16>("linear", expected.of, select_rows(run.read(result.data, result.rows * out), out, some),
                             1);
    };
  };
  const double moved = 2.0 * static_cast<double>(rows * (in + out)) + halves.weight_bytes() / 2;
  run.measure({moved, bytes.flops(rows)},
              {queue_linear(run, {make_linear(run, bytes, x, y, DType::i8)}), check(bytes, y)},
              {{"fp16", {queue_linear(run, {make_linear(run, halves, x, by_halves)}), check(halves, by_halves)}}});
}

}  // namespace

void add_benchmarks() {
  const int64_t shapes[][2] = {{600, 256}, {1024, 512}, {1024, 1024}, {2528, 2048}};
  for (const auto& [in, out] : shapes)
    for (const int64_t rows : {1, 100, 500, 1000, 4096})
      if (on_gpu || (rows <= 100 && in <= 600))
        add("linear/in:" + std::to_string(in) + "/out:" + std::to_string(out) + "/rows:" + std::to_string(rows),
            [rows, in = in, out = out](Run& run) { linear(run, rows, in, out); });
  for (const auto& [in, out] : shapes)
    for (const int64_t rows : {1, 100, 1000})
      if (on_gpu || (rows <= 100 && in <= 600))
        add("linear/int8/in:" + std::to_string(in) + "/out:" + std::to_string(out) + "/rows:" + std::to_string(rows),
            [rows, in = in, out = out](Run& run) { int8_linear(run, rows, in, out); });
}

}  // namespace warprank::bench
