// SPDX-License-Identifier: Apache-2.0

// Layers of xDeepFM's CIN and of Wukong's linear compression, against one product of cuBLASLt over products of fields
// that are in memory already, a row for each column: what it takes to make them is not in the baseline.

#include <cstdint>
#include <string>
#include <vector>

#include "dense.cuh"
#include "reference/field_linear.hpp"
#include "warprank/ops/field_linear.cuh"

namespace warprank::bench {
namespace {

void field_linear(Run& run, int64_t rows, FieldLinearShape shape, int64_t dim) {
  const DenseLayer layer(shape.terms(), shape.out, true, 1);
  const int64_t in = shape.fields * dim, factors_in = shape.num_factors * dim, out = shape.out * dim;
  const std::vector<float16> values = random_halves(rows * in, 3), factor_values = random_halves(rows * factors_in, 4);
  const Matrix<const float16> fields(run.upload(values), rows, in);
  const Matrix<const float16> factors(factors_in > 0 ? run.upload(factor_values) : nullptr, rows, factors_in);
  const Matrix<float16> y(run.allocate<float16>(rows * out), rows, out),
      by_cublas(run.allocate<float16>(rows * out), rows * dim, shape.out);
  const auto packed = pack_field_linear(shape, layer.weight, layer.bias);
  const FieldLinear<float16> op(factors, fields,
                                {dim, shape.out, run.upload(packed.data(), packed.size()), {ActivationKind::relu}}, y);

  const std::vector<int64_t> some = some_rows(rows);
  const auto count = static_cast<int64_t>(some.size());
  const auto check = [&] {
    const std::vector<float> of_fields = select_rows(values, in, some);
    const std::vector<float> of_factors =
        factors_in > 0 ? select_rows(factor_values, factors_in, some) : std::vector<float>();
    reference::Linear of_layer;
    of_layer.in = layer.in, of_layer.out = layer.out, of_layer.weight = layer.weight, of_layer.bias = layer.bias;
    of_layer.activation = layer.activation();
    expect_within<float16>("field_linear",
                           reference::field_linear(of_layer, dim, {of_factors.data(), count, factors_in},
                                                   {of_fields.data(), count, in}, shape.out, 0, true),
                           select_rows(run.read(y.data, rows * out), out, some), 2);
  };
  const Matrix<const float16> products(run.upload(random_halves(rows * dim * layer.in, 5)), rows * dim, layer.in);
  const double bytes = 2.0 * static_cast<double>(rows * (in + factors_in + out)) + layer.weight_bytes();
  run.measure({bytes, layer.flops(rows * dim)}, {queue_launch(run, op), check},
              {{product_maker, {queue_product(run, layer, products, by_cublas), [] {}}}});
}

}  // namespace

void add_benchmarks() {
  struct Case {
    FieldLinearShape shape;
    int64_t dim;
  };
  for (const auto& [shape, dim] : {Case{{39, 39, 128}, 16}, Case{{200, 39, 200}, 10}, Case{{0, 64, 32}, 64}})
    for (const int64_t rows : on_gpu ? std::vector<int64_t>{100, 500} : std::vector<int64_t>{3})
      add("field_linear/factors:" + std::to_string(shape.num_factors) + "/fields:" + std::to_string(shape.fields) +
              "/out:" + std::to_string(shape.out) + "/dim:" + std::to_string(dim) + "/rows:" + std::to_string(rows),
          [rows, shape = shape, dim = dim](Run& run) { field_linear(run, rows, shape, dim); });
}

}  // namespace warprank::bench
