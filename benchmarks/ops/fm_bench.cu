// SPDX-License-Identifier: Apache-2.0

// The factorisation machine over the fields of a user and of its items, against the same where the user's fields are
// first repeated for every item, as without late broadcast.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "measure_cuda.cuh"
#include "policies.cuh"
#include "reference/fm.hpp"
#include "row_launches.cuh"
#include "user_and_items.cuh"
#include "warprank/ops/fm.cuh"

namespace warprank::bench {
namespace {

void fm(Run& run, int64_t requests, int64_t items, int64_t dim, const PolicySweep* sweep = nullptr) {
  const UserAndItems x(run, requests, items, 24 * dim, 36 * dim);
  const auto result = [&] { return Matrix<float16>(run.allocate<float16>(x.num_items()), x.num_items(), 1); };
  const auto inputs = x.inputs();
  const std::vector<int64_t> some = some_rows(x.num_items());
  const std::vector<float> rows = x.rows(some);
  const SegmentedInput input{{rows.data(), static_cast<int64_t>(some.size()), 60 * dim}};
  const reference::Bounded expected = reference::fm({&input, 1}, dim, true, input.values.rows);
  const auto check = [&](Matrix<float16> to) {
    return
        [&, to] { expect_within<float16>("fm", expected, select_rows(run.read(to.data, x.num_items()), 1, some), 1); };
  };
  const auto call_by = [&](const LaunchPolicies& policies) -> Call {
    const Matrix<float16> y = result();
    const auto split = std::make_shared<const Fm<float16, float16>>(Span<const AxisInput<float16>>(inputs), dim, y,
                                                                    nullptr, FmOptions{}, policies);
    return {[=](device::Stream stream) { split->launch({}, stream); }, check(y)};
  };
  if (sweep != nullptr) return compare_policies(run, *sweep, call_by);

  const Matrix<float16> of_expanded = result();
  const AxisInput<float16> whole{x.expanded()};
  const Fm<float16, float16> expanded({&whole, 1}, dim, of_expanded);
  run.measure({x.bytes() + 2.0 * static_cast<double>(x.num_items())}, call_by(usual_policies()),
              {{"expanded",
                {in_sequence({queue_row_programs(run, x.expansion()),
                              [&](device::Stream stream) { expanded.launch({}, stream); }}),
                 check(of_expanded)}}});
}

}  // namespace

void add_benchmarks() {
  for (const auto& [requests, items] : request_sizes())
    for (const int64_t dim : {16, 64})
      add("fm/" + request_name(requests, items) + "/dim:" + std::to_string(dim),
          [=, requests = requests, items = items](Run& run) { fm(run, requests, items, dim); });

  using Policies = LaunchPolicies;
  const auto add_sweeps = [](const PolicySweep& sweep, const std::vector<std::pair<int64_t, int64_t>>& sizes) {
    for (const auto& [requests, items] : sizes)
      for (const int64_t dim : {16, 64})
        add_policy(sweep, "fm/" + request_name(requests, items) + "/dim:" + std::to_string(dim),
                   [=, requests = requests, items = items](Run& run, const PolicySweep* of) {
                     fm(run, requests, items, dim, of);
                   });
  };
  add_sweeps({"fm_rows_of_one_each", &Policies::fm_rows_of_one_each, {0, no_limit}}, sizes_of_sweeps());
  add_sweeps({"fm_rows_per_warp", &Policies::fm_rows_per_warp, {1, 2, 3, 4}}, many_rows_of_sweeps());
}

}  // namespace warprank::bench
