// SPDX-License-Identifier: Apache-2.0

// Interacting layers of AutoInt, against one product of cuBLASLt for queries, keys, values and the residual of all
// fields, which it puts into memory: scores and sums are not in the baseline.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "dense.cuh"
#include "reference/field_attention.hpp"
#include "warprank/ops/field_attention.cuh"

namespace warprank::bench {
namespace {

void field_attention(Run& run, int64_t rows, int64_t fields, FieldAttentionShape shape) {
  const int64_t columns = shape.heads * shape.head_dim, in = fields * shape.dim, out = fields * columns;
  const DenseLayer projections(shape.dim, 4 * columns, false, 1);
  const auto weight = [&](int64_t which) {
    const auto first = projections.weight.begin() + which * shape.size();
    return std::vector<float>(first, first + shape.size());
  };
  reference::FieldAttention layer{shape.dim, shape.heads, shape.head_dim, 1 / std::sqrt(double(shape.head_dim))};
  layer.query = weight(0), layer.key = weight(1), layer.value = weight(2), layer.residual = weight(3);
  layer.activation = {ActivationKind::relu};
  const std::vector<float16> values = random_halves(rows * in, 3);
  const Matrix<const float16> x(run.upload(values), rows, in);
  const Matrix<float16> y(run.allocate<float16>(rows * out), rows, out),
      projected(run.allocate<float16>(rows * out * 4), rows * fields, 4 * columns);
  const auto packed = pack_field_attention(shape, layer.query, layer.key, layer.value, layer.residual);
  const FieldAttention<float16> op(
      x,
      {shape, run.upload(packed.data(), packed.size()), static_cast<float>(layer.scale), true, {ActivationKind::relu}},
      y);

  const std::vector<int64_t> some = some_rows(rows);
  const auto check = [&] {
    const std::vector<float> of_x = select_rows(values, in, some);
    expect_within<float16>(
        "field_attention",
        reference::field_attention(layer, {of_x.data(), static_cast<int64_t>(some.size()), in}, true),
        select_rows(run.read(y.data, rows * out), out, some), 2);
  };
  const Matrix<const float16> as_fields(x.data, rows * fields, shape.dim);
  const double bytes = 2.0 * static_cast<double>(rows * (in + out)) + projections.weight_bytes();
  const double flops = projections.flops(rows * fields) + 4.0 * static_cast<double>(rows * fields * fields * columns);
  run.measure({bytes, flops}, {queue_launch(run, op), check},
              {{product_maker, {queue_product(run, projections, as_fields, projected), [] {}}}});
}

}  // namespace

void add_benchmarks() {
  struct Case {
    int64_t fields;
    FieldAttentionShape shape;
  };
  for (const auto& [fields, shape] :
       {Case{39, {16, 2, 32}}, Case{39, {64, 2, 32}}, Case{10, {16, 2, 8}}, Case{128, {64, 4, 32}}})
    for (const int64_t rows : on_gpu ? std::vector<int64_t>{100, 500} : std::vector<int64_t>{3})
      add("field_attention/fields:" + std::to_string(fields) + "/dim:" + std::to_string(shape.dim) +
              "/heads:" + std::to_string(shape.heads) + "/head_dim:" + std::to_string(shape.head_dim) +
              "/rows:" + std::to_string(rows),
          [rows, fields = fields, shape = shape](Run& run) { field_attention(run, rows, fields, shape); });
}

}  // namespace warprank::bench
