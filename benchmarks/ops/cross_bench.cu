// SPDX-License-Identifier: Apache-2.0

// Cross layers of DCN-v2, full and low-rank, against products of cuBLASLt and an elementwise launch.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "dense.cuh"
#include "row_launches.cuh"
#include "warprank/ops/cross.cuh"

namespace warprank::bench {
namespace {

/// y = x0 * h + x, where h is rounded to FP16 or not.
reference::Bounded crossed(const Activations& h, const std::vector<float>& x0, const std::vector<float>& x,
                           bool is_rounded) {
  reference::Bounded y;
  for (size_t i = 0; i < x.size(); ++i) {
    const double product = x0[i] * h.of.value[i], value = product + x[i];
    const double of_h = h.of.bound[i] + (is_rounded ? 0x1p13 * std::fabs(h.of.value[i]) : 0);
    y.value.push_back(value);
    y.bound.push_back(1.001 * std::fabs(x0[i]) * of_h + 2 * std::fabs(product) + std::fabs(value));
  }
  return y;
}

/// `rank` 0: the full matrix.
void cross(Run& run, int64_t rows, int64_t dim, int64_t rank) {
  std::vector<DenseLayer> layers;
  if (rank > 0) {
    layers.emplace_back(dim, rank, false, 1);
    layers[0].bias.clear();
  }
  layers.emplace_back(rank > 0 ? rank : dim, dim, false, 3);
  const std::vector<float16> values = random_halves(rows * dim, 5), first_values = random_halves(rows * dim, 6);
  const Matrix<const float16> x(run.upload(values), rows, dim), x0(run.upload(first_values), rows, dim);
  const auto result = [&] { return Matrix<float16>(run.allocate<float16>(rows * dim), rows, dim); };
  const Matrix<float16> y = result(), product = result(), unfused = result();

  std::vector<Queue> launches;
  if (rank > 0) {
    const Matrix<float16> v(run.allocate<float16>(rows * rank), rows, rank);
    for (const LinearLayer& layer :
         low_rank_cross_layers(upload_packed(run, layers[0]), upload_packed(run, layers[1]), x0, x, v, y))
      launches.push_back(queue_linear(run, {layer}));
  } else {
    launches.push_back(queue_linear(run, {cross_layer(upload_packed(run, layers[0]), x0, x, y)}));
  }

  const ElementwiseProgram multiply_add{3, 0, {}, {{ElementwiseFunction::mul, 0, 1}, {ElementwiseFunction::add, 3, 2}}};
  const std::vector<AxisInput<void>> inputs{{x0}, {Matrix<const float16>(product)}, {x}};
  RowProgram elementwise;
  elementwise.program = &multiply_add, elementwise.inputs = inputs, elementwise.y = unfused;
  const Queue chain =
      in_sequence({queue_chain(run, layers, x, product, queue_product), queue_row_programs(run, {elementwise})});

  const std::vector<int64_t> some = some_rows(rows);
  const std::vector<float> of_x = select_rows(values, dim, some), of_x0 = select_rows(first_values, dim, some);
  const Activations h = propagate(layers, {static_cast<int64_t>(some.size()), dim, of_x});
  const auto check = [&](Matrix<float16> to, bool is_rounded) {
    return [&, to, is_rounded] {
      expect_within<float16>("cross", crossed(h, of_x0, of_x, is_rounded),
                             select_rows(run.read(to.data, rows * dim), dim, some), 1);
    };
  };
  Work work{6.0 * static_cast<double>(rows * dim)};
  for (const DenseLayer& layer : layers) work.bytes += layer.weight_bytes(), work.flops += layer.flops(rows);
  run.measure(work, {in_sequence(launches), check(y, false)}, {{product_maker, {chain, check(unfused, true)}}});
}

}  // namespace

void add_benchmarks() {
  struct Shape {
    std::string name;
    int64_t dim, rank;
  };
  const std::vector<Shape> shapes =
      on_gpu ? std::vector<Shape>{{"full", 600, 0}, {"full", 1024, 0}, {"low_rank", 3456, 512}}
             : std::vector<Shape>{{"full", 64, 0}, {"low_rank", 96, 32}};
  for (const Shape& shape : shapes)
    for (const int64_t rows : on_gpu ? std::vector<int64_t>{100, 500, 2048} : std::vector<int64_t>{17})
      add("cross/" + shape.name + "/dim:" + std::to_string(shape.dim) + "/rank:" + std::to_string(shape.rank) +
              "/rows:" + std::to_string(rows),
          [=](Run& run) { cross(run, rows, shape.dim, shape.rank); });
}

}  // namespace warprank::bench
