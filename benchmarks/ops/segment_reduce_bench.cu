// SPDX-License-Identifier: Apache-2.0

// Means over the rows of segments, of eight matrices in one launch, against a launch for each.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dense_data.hpp"
#include "measure_cuda.cuh"
#include "reference/reduce.hpp"
#include "warprank/ops/segment_reduce.cuh"
#include "workloads.hpp"

namespace warprank::bench {
namespace {

constexpr int num_matrices = 8;

Queue queue_reductions(const std::vector<SegmentReduction>& reductions) {
  const auto launch = std::make_shared<SegmentReduceLaunch>(reductions);
  return [=](device::Stream stream) { launch->run(stream); };
}

void segment_reduce(Run& run, int64_t segments, int64_t mean_rows, int64_t cols) {
  const std::vector<int64_t> offsets = request_offsets(segments, mean_rows);
  const int64_t rows = offsets.back();
  const auto* const on_device = run.upload(offsets);
  const std::vector<half> values = random_halves(rows * cols, 1);
  const std::vector<float> floats = to_floats(values);
  std::vector<std::vector<SegmentReduction>> reductions(2);
  std::vector<Queue> one_by_one;
  for (int m = 0; m < num_matrices; ++m) {
    SegmentReduction reduction;
    reduction.x = Matrix<const half>(run.upload(values), rows, cols);
    reduction.offsets = on_device;
    reduction.pooling = Pooling::mean;
    for (auto& of_result : reductions) {
      reduction.y = Matrix<half>(run.allocate<half>(segments * cols), segments, cols);
      of_result.push_back(reduction);
    }
    one_by_one.push_back(queue_reductions({reduction}));
  }
  std::vector<int64_t> some = some_rows(segments);
  const auto check = [&](const std::vector<SegmentReduction>& of_result) {
    return [&] {
      for (const SegmentReduction& reduction : of_result) {
        const auto got = run.read(static_cast<const half*>(reduction.y.data), segments * cols);
        for (const int64_t s : some) {
          const int64_t begin = offsets[static_cast<size_t>(s)],
                        bounds[] = {0, offsets[static_cast<size_t>(s) + 1] - begin};
          const auto expected =
              reference::segment_reduce({floats.data() + begin * cols, bounds[1], cols}, {bounds, 1}, Pooling::mean);
          expect_within<half>("segment_reduce", expected, select_rows(got, cols, {s}), 1);
        }
      }
    };
  };
  const auto elements = static_cast<double>(num_matrices * (rows + segments) * cols);
  run.measure({2 * elements + 8.0 * static_cast<double>(segments + 1)},
              {queue_reductions(reductions[0]), check(reductions[0])},
              {{"unfused", {in_sequence(one_by_one), check(reductions[1])}}});
}

}  // namespace

void add_benchmarks() {
  const int64_t shapes[][3] = {{1, 100, 64}, {16, 100, 64}, {64, 100, 64}, {500, 5, 8}, {6400, 5, 16}};
  for (const auto& [segments, rows, cols] : shapes)
    if (on_gpu || segments <= 64)
      add("segment_reduce/segments:" + std::to_string(segments) + "/rows:" + std::to_string(rows) +
              "/cols:" + std::to_string(cols),
          [segments = segments, rows = rows, cols = cols](Run& run) { segment_reduce(run, segments, rows, cols); });
}

}  // namespace warprank::bench
