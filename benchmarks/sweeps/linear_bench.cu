// SPDX-License-Identifier: Apache-2.0

// Every way to cut a plain linear layer, and cuBLASLt: what tools/policies.py fits the costs of
// detail/linear/tile_costs.hpp to.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dense.cuh"

namespace warprank::bench {
namespace {

/// All that the library may take.
std::vector<LinearTiling> tilings_of(int64_t rows, int64_t in, int64_t out) {
  std::vector<LinearTiling> tilings;
  for (int i = 0; i < detail::linear::num_tiles; ++i) {
    const auto tile = static_cast<LinearTile>(i);
    const detail::linear::TileShape& shape = detail::linear::tile_shape(tile);
    const int64_t tiles = ((rows + shape.rows - 1) / shape.rows) * ((out + shape.columns - 1) / shape.columns);
    for (int parts = 1; parts <= (shape.can_be_cut ? detail::linear::max_parts : 1); ++parts)
      if (detail::linear::may_be_cut(parts, in, static_cast<double>(parts * tiles), device::target()))
        tilings.push_back({tile, parts});
  }
  return tilings;
}

void linear(Run& run, int64_t rows, int64_t in, int64_t out) {
  const DenseLayer layer(in, out, true, 1);
  const std::vector<float16> values = random_halves(rows * in, 3);
  const Matrix<const float16> x(run.upload(values), rows, in);
  const std::vector<int64_t> some = some_rows(rows);
  const Activations expected =
      propagate({layer}, {static_cast<int64_t>(some.size()), in, select_rows(values, in, some)});

  std::vector<std::pair<std::string, Call>> ways;
  const auto add_way = [&](const std::string& name, auto queue) {
    const Matrix<float16> y(run.allocate<float16>(rows * out), rows, out);
    ways.push_back({name, {queue(y), [&run, &expected, &some, y, rows, out] {
                             const std::vector<float16> got = run.read(y.data, rows * out);
                             expect_within<float16>("linear", expected.of, select_rows(got, out, some), 1);
                           }}});
  };
  for (const LinearTiling& tiling : tilings_of(rows, in, out))
    add_way(tiling.to_string(), [&](Matrix<float16> y) {
      const std::vector<LinearLayer> layers{make_linear(run, layer, x, y)};
      return queue_launch(run, LinearLaunch(layers, device::target(), tiling));
    });
  if (product_maker == "cublaslt")
    add_way(product_maker, [&](Matrix<float16> y) { return queue_product(run, layer, x, y); });
  run.compare(ways);
}

/// Whether it is among what takes minutes where each product is executed on the CPU, also by a card in software.
bool is_quick_enough(int64_t rows, int64_t in, int64_t out) {
  if (!on_gpu) return rows <= 50 && in <= 600;
  return !is_simulated() || rows * in * out <= int64_t{1} << 30;
}

}  // namespace

void add_benchmarks() {
  std::vector<std::pair<int64_t, int64_t>> shapes{{256, 256},   {600, 256},  {1024, 512}, {1024, 1024},
                                                  {2528, 2048}, {3456, 512}, {512, 3456}};
  std::vector<int64_t> rows_of_all{1, 16, 50, 100, 200, 500, 1000, 4096};
  if (is_simulated()) {  // in the place of the large ones
    shapes.insert(shapes.end(), {{64, 256}, {512, 256}, {512, 1024}});
    rows_of_all.push_back(2000);
  }
  for (const auto& [in, out] : shapes)
    for (const int64_t rows : rows_of_all)
      if (is_quick_enough(rows, in, out))
        add_sweep("linear/in:" + std::to_string(in) + "/out:" + std::to_string(out) + "/rows:" + std::to_string(rows),
                  [rows, in = in, out = out](Run& run) { linear(run, rows, in, out); });
}

}  // namespace warprank::bench
