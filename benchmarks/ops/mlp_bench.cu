// SPDX-License-Identifier: Apache-2.0

// Stacks of layers against a chain of cuBLASLt, and against the library's own layers one by one, both in a graph.

#include <cstdint>
#include <string>
#include <vector>

#include "dense.cuh"
#include "warprank/ops/mlp.cuh"

namespace warprank::bench {
namespace {

void mlp(Run& run, const std::vector<int64_t>& widths, int64_t rows) {
  const std::vector<DenseLayer> layers = random_stack(widths);
  const int64_t in = widths.front(), out = widths.back();
  const std::vector<half> values = random_halves(rows * in, 3);
  const Matrix<const half> x(run.upload(values), rows, in);
  const auto result = [&] { return Matrix<float>(run.allocate<float>(rows * out), rows, out); };
  const Matrix<float> y = result(), by_cublas = result(), by_layers = result();

  std::vector<MlpLayer> fused;
  Work work{2.0 * static_cast<double>(rows * in) + 4.0 * static_cast<double>(rows * out)};
  for (const DenseLayer& layer : layers) {
    fused.push_back({upload_packed(run, layer), layer.out, {layer.activation().kind}});
    work.bytes += layer.weight_bytes(), work.flops += layer.flops(rows);
  }
  Mlp stack;
  stack.x = x, stack.layers = fused, stack.y = y;
  const std::vector<Mlp> stacks{stack};
  const MlpLaunch launch(stacks, run.allocate<unsigned char>(MlpLaunch::workspace_bytes(stacks)));
  const auto* const descriptors = run.upload(launch.descriptors());

  const std::vector<int64_t> some = some_rows(rows);
  const Activations expected =
      propagate(layers, {static_cast<int64_t>(some.size()), in, select_rows(values, in, some)});
  const auto check = [&](Matrix<float> to) {
    return
        [&, to] { expect_within<float>("mlp", expected.of, select_rows(run.read(to.data, rows * out), out, some), 1); };
  };
  const auto own_layer = [](Memory& memory, const DenseLayer& layer, Matrix<const half> from, FloatMatrix<void> to) {
    return queue_linear(memory, {make_linear(memory, layer, from, to)});
  };
  run.measure(work, {[&](device::Stream stream) { launch.run(descriptors, stream); }, check(y)},
              {{product_maker, {queue_chain(run, layers, x, by_cublas, queue_product), check(by_cublas)}},
               {"layers", {queue_chain(run, layers, x, by_layers, own_layer), check(by_layers)}}});
}

}  // namespace

void add_benchmarks() {
  const std::vector<std::vector<int64_t>> stacks = {
      {600, 256, 256, 256, 1}, {1024, 1024, 512, 256, 1}, {256, 128, 64, 1}};
  for (const std::vector<int64_t>& widths : stacks) {
    std::string name = "mlp/" + std::to_string(widths[0]);
    for (size_t i = 1; i < widths.size(); ++i) name += "_" + std::to_string(widths[i]);
    for (const int64_t rows : {1, 50, 100, 500, 1000, 4096})
      if (on_gpu || (rows <= 50 && widths[1] <= 256))
        add(name + "/rows:" + std::to_string(rows), [=](Run& run) { mlp(run, widths, rows); });
  }
}

}  // namespace warprank::bench
