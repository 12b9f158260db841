// SPDX-License-Identifier: Apache-2.0

// Experts of two layers with the gates of two tasks in two launches, against products of cuBLASLt; and experts of which
// each row goes through the one that its scene names, against all rows through all of them.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "dense.cuh"
#include "warprank/ops/experts.cuh"

namespace warprank::bench {
namespace {

/// Layers of one input side by side, as one.
DenseLayer stack(const std::vector<DenseLayer>& layers) {
  std::vector<float> weight, bias;
  for (const DenseLayer& layer : layers) {
    weight.insert(weight.end(), layer.weight.begin(), layer.weight.end());
    bias.insert(bias.end(), layer.bias.begin(), layer.bias.end());
  }
  return {weight, bias, layers[0].in, layers[0].is_relu};
}

const unsigned char* upload_experts(Memory& memory, const std::vector<DenseLayer>& experts) {
  const DenseLayer all = stack(experts);
  const auto packed = pack_experts(Span<const float>(all.weight), Span<const float>(all.bias), all.in, experts[0].out,
                                   static_cast<int64_t>(experts.size()));
  return memory.upload(packed.data(), packed.size());
}

/// What the launches of experts and gates write.
struct Results {
  Results(Memory& memory, int64_t rows, int64_t hidden, int64_t out, int num_experts)
      : h(memory.allocate<float16>(rows * num_experts * hidden), rows, num_experts * hidden),
        y(memory.allocate<float16>(rows * num_experts * out), rows, num_experts * out) {
    for (Matrix<float>& gate : gates) gate = {memory.allocate<float>(rows * num_experts), rows, num_experts};
  }
  Matrix<float16> h, y;
  Matrix<float> gates[2];
};

void experts(Run& run, int64_t rows, int64_t in, int64_t hidden, int64_t out) {
  constexpr int num_experts = 4;
  std::vector<DenseLayer> first, second, gates;
  for (uint64_t e = 0; e < num_experts; ++e) {
    first.emplace_back(in, hidden, true, 10 * e);
    second.emplace_back(hidden, out, true, 10 * e + 2);
  }
  for (uint64_t t = 0; t < 2; ++t) gates.emplace_back(in, num_experts, false, 100 + 2 * t);
  const std::vector<float16> values = random_halves(rows * in, 3);
  const Matrix<const float16> x(run.upload(values), rows, in);
  const Results ours(run, rows, hidden, out, num_experts), theirs(run, rows, hidden, out, num_experts);

  const DenseLayer stacked = stack(first);
  std::vector<LinearLayer> first_launch{make_linear(run, stacked, x, ours.h)};
  for (size_t t = 0; t < 2; ++t) first_launch.push_back(make_linear(run, gates[t], x, ours.gates[t]));
  LinearLayer all;
  all.weights = upload_experts(run, second);
  all.x = ours.h, all.y = ours.y, all.activation.kind = ActivationKind::relu;
  const Queue two_launches =
      in_sequence({queue_linear(run, first_launch), queue_linear(run, split_experts(all, num_experts))});

  std::vector<Queue> products{queue_product(run, stacked, x, theirs.h)};
  for (size_t t = 0; t < 2; ++t) products.push_back(queue_product(run, gates[t], x, theirs.gates[t]));
  for (int e = 0; e < num_experts; ++e)
    products.push_back(queue_product(run, second[static_cast<size_t>(e)], theirs.h.columns(e * hidden, hidden),
                                     theirs.y.columns(e * out, out)));

  const std::vector<int64_t> some = some_rows(rows);
  const auto count = static_cast<int64_t>(some.size());
  const Activations of_x(count, in, select_rows(values, in, some));
  const auto check = [&](const Results& results) {
    return [&] {
      const std::vector<float16> y = run.read(results.y.data, rows * num_experts * out);
      for (size_t e = 0; e < num_experts; ++e) {
        std::vector<float> got;
        for (const int64_t row : some)
          for (int64_t c = 0; c < out; ++c)
            got.push_back(to_float(y[static_cast<size_t>((row * num_experts + static_cast<int64_t>(e)) * out + c)]));
        expect_within<float16>("experts", propagate({first[e], second[e]}, of_x).of, got, 1);
      }
      for (size_t t = 0; t < 2; ++t)
        expect_within<float>("gate", propagate({gates[t]}, of_x).of,
                             select_rows(run.read(results.gates[t].data, rows * num_experts), num_experts, some), 1);
    };
  };
  Work work{2.0 * static_cast<double>(rows * (in + num_experts * out)) + 8.0 * static_cast<double>(rows * num_experts)};
  for (const auto* layers : {&first, &second, &gates})
    for (const DenseLayer& layer : *layers) work.bytes += layer.weight_bytes(), work.flops += layer.flops(rows);
  run.measure(work, {two_launches, check(ours)}, {{product_maker, {in_sequence(products), check(theirs)}}});
}

void scenes(Run& run, int64_t rows, int64_t in, int64_t out, int num_scenes) {
  std::vector<DenseLayer> layers;
  for (int s = 0; s < num_scenes; ++s) layers.emplace_back(in, out, true, static_cast<uint64_t>(10 * s));
  const std::vector<float16> values = random_halves(rows * in, 3);
  std::vector<int64_t> ids;
  std::mt19937_64 random(4);
  for (int64_t r = 0; r < rows; ++r) ids.push_back(test_support::Zipf(num_scenes, 1.05)(random));
  const Matrix<const float16> x(run.upload(values), rows, in);
  const Matrix<float16> y(run.allocate<float16>(rows * out), rows, out),
      of_all(run.allocate<float16>(rows * out * num_scenes), rows, out * num_scenes);

  SceneIds scene_ids;
  scene_ids.ids = static_cast<const int64_t*>(run.upload(ids));
  scene_ids.num_ids.capacity = rows;
  const SceneRows sorted(scene_ids, num_scenes, {rows},
                         run.allocate<unsigned char>(SceneRows::bytes(num_scenes, rows)));
  LinearLayer grouped;
  grouped.weights = upload_experts(run, layers);
  grouped.x = x, grouped.y = y, grouped.activation.kind = ActivationKind::relu, grouped.groups = sorted.groups();
  const Queue linear = queue_linear(run, {grouped});

  const std::vector<int64_t> some = some_rows(rows);
  const auto check = [&](Matrix<float16> to) {
    return [&, to] {
      const std::vector<float16> got = run.read(to.data, rows * to.cols);
      for (const int64_t row : some) {
        const int64_t scene = ids[static_cast<size_t>(row)], begin = to.cols == out ? 0 : scene * out;
        const std::vector<float> all = select_rows(got, to.cols, {row});
        expect_within<float16>(
            "scenes", propagate({layers[static_cast<size_t>(scene)]}, {1, in, select_rows(values, in, {row})}).of,
            {all.begin() + begin, all.begin() + begin + out}, 1);
      }
    };
  };
  Work work{2.0 * static_cast<double>(rows * (in + out)) + 8.0 * static_cast<double>(rows)};
  for (const DenseLayer& layer : layers) work.bytes += layer.weight_bytes();
  work.flops = layers[0].flops(rows);
  run.measure(work, {in_sequence({[&](device::Stream stream) { sorted.launch({}, stream); }, linear}), check(y)},
              {{"all_experts", {queue_linear(run, {make_linear(run, stack(layers), x, of_all)}), check(of_all)}}});
}

}  // namespace

void add_benchmarks() {
  for (const int64_t rows : on_gpu ? std::vector<int64_t>{50, 200, 500, 1600} : std::vector<int64_t>{17}) {
    const int64_t in = size_for(2528, 96);
    add("experts/mmoe/in:" + std::to_string(in) + "/rows:" + std::to_string(rows),
        [=](Run& run) { experts(run, rows, in, size_for(512, 64), size_for(256, 32)); });
    add("experts/scenes:8/rows:" + std::to_string(rows),
        [=](Run& run) { scenes(run, rows, size_for(512, 64), size_for(256, 32), 8); });
  }
}

}  // namespace warprank::bench
