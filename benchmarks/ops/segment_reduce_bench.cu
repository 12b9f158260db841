// SPDX-License-Identifier: Apache-2.0

// Means over the rows of segments, of eight matrices in one launch, against a launch for each.

#include <cstdint>
#include <string>
#include <vector>

#include "dense_data.hpp"
#include "measure_cuda.cuh"
#include "policies.cuh"
#include "reference/reduce.hpp"
#include "warprank/ops/segment_reduce.cuh"
#include "workloads.hpp"

namespace warprank::bench {
namespace {

constexpr int num_matrices = 8;

void segment_reduce(Run& run, int64_t segments, int64_t mean_rows, int64_t cols, const PolicySweep* sweep = nullptr) {
  const std::vector<int64_t> offsets = request_offsets(segments, mean_rows);
  const int64_t rows = offsets.back();
  const auto* const on_device = run.upload(offsets);
  const std::vector<float16> values = random_halves(rows * cols, 1);
  const std::vector<float> floats = to_floats(values);
  std::vector<SegmentReduction> reductions(num_matrices);
  for (SegmentReduction& reduction : reductions) {
    reduction.x = Matrix<const float16>(run.upload(values), rows, cols);
    reduction.offsets = on_device;
    reduction.pooling = Pooling::mean;
  }
  const auto with_results = [&] {
    for (SegmentReduction& reduction : reductions)
      reduction.y = Matrix<float16>(run.allocate<float16>(segments * cols), segments, cols);
    return reductions;
  };
  std::vector<int64_t> some = some_rows(segments);
  const auto check = [&](const std::vector<SegmentReduction>& of_result) {
    return [&, of_result] {
      for (const SegmentReduction& reduction : of_result) {
        const auto got = run.read(static_cast<const float16*>(reduction.y.data), segments * cols);
        for (const int64_t s : some) {
          const int64_t begin = offsets[static_cast<size_t>(s)],
                        bounds[] = {0, offsets[static_cast<size_t>(s) + 1] - begin};
          const auto expected =
              reference::segment_reduce({floats.data() + begin * cols, bounds[1], cols}, {bounds, 1}, Pooling::mean);
          expect_within<float16>("segment_reduce", expected, select_rows(got, cols, {s}), 1);
        }
      }
    };
  };
  const auto call_by = [&](const LaunchPolicies& policies) -> Call {
    const std::vector<SegmentReduction> of_call = with_results();
    return {queue_launch(run, SegmentReduceLaunch(of_call, policies)), check(of_call)};
  };
  if (sweep != nullptr) return compare_policies(run, *sweep, call_by);

  const std::vector<SegmentReduction> apart = with_results();
  std::vector<Queue> one_by_one;
  for (const SegmentReduction& reduction : apart)
    one_by_one.push_back(queue_launch(run, SegmentReduceLaunch({&reduction, 1})));
  const auto elements = static_cast<double>(num_matrices * (rows + segments) * cols);
  run.measure({2 * elements + 8.0 * static_cast<double>(segments + 1)}, call_by(usual_policies()),
              {{"unfused", {in_sequence(one_by_one), check(apart)}}});
}

}  // namespace

void add_benchmarks() {
  const int64_t shapes[][3] = {{1, 100, 64}, {16, 100, 64}, {64, 100, 64}, {500, 5, 8}, {6400, 5, 16}};
  const PolicySweep blocks{"segment_reduce_blocks", &LaunchPolicies::segment_reduce_blocks, {1, 2, 4, 8, 16}};
  for (const auto& [segments, rows, cols] : shapes) {
    const std::string name = "segment_reduce/segments:" + std::to_string(segments) + "/rows:" + std::to_string(rows) +
                             "/cols:" + std::to_string(cols);
    const auto body = [segments = segments, rows = rows, cols = cols](Run& run, const PolicySweep* sweep) {
      segment_reduce(run, segments, rows, cols, sweep);
    };
    if (on_gpu || segments <= 64) add(name, [body](Run& run) { body(run, nullptr); });
    if (on_gpu || segments == 1) add_policy(blocks, name, body);
  }
}

}  // namespace warprank::bench
