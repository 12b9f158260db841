// SPDX-License-Identifier: Apache-2.0

// Dot products of all pairs of fields of users and items, against the same where the user's fields are first repeated
// for every item, as without late broadcast; and DLRM's 27 fields of 128, all of items.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "measure_cuda.cuh"
#include "policies.cuh"
#include "reference/dot.hpp"
#include "row_launches.cuh"
#include "user_and_items.cuh"
#include "warprank/ops/dot.cuh"

namespace warprank::bench {
namespace {

void dot(Run& run, int64_t requests, int64_t items, int64_t user_fields, int64_t item_fields, int64_t dim,
         const PolicySweep* sweep = nullptr) {
  const UserAndItems x(run, requests, items, user_fields * dim, item_fields * dim);
  const int64_t fields = user_fields + item_fields, columns = num_dot_pairs(fields, {});
  const auto result = [&] {
    return Matrix<float16>(run.allocate<float16>(x.num_items() * columns), x.num_items(), columns);
  };
  std::vector<AxisInput<float16>> inputs = x.inputs();
  if (user_fields == 0) inputs.erase(inputs.begin());

  const std::vector<int64_t> some = some_rows(x.num_items());
  const std::vector<float> rows = x.rows(some);
  const SegmentedInput input{{rows.data(), static_cast<int64_t>(some.size()), fields * dim}};
  const reference::Bounded expected = reference::dot({&input, 1}, dim, {}, input.values.rows);
  const auto check = [&](Matrix<float16> to) {
    return [&, to] {
      expect_within<float16>("dot", expected, select_rows(run.read(to.data, x.num_items() * columns), columns, some),
                             2);
    };
  };
  const auto call_by = [&](const LaunchPolicies& policies) -> Call {
    const Matrix<float16> y = result();
    const auto split = std::make_shared<const Dot<float16>>(Span<const AxisInput<float16>>(inputs), dim, DotPairs{}, y,
                                                            nullptr, policies);
    return {[=](device::Stream stream) { split->launch({}, stream); }, check(y)};
  };
  if (sweep != nullptr) return compare_policies(run, *sweep, call_by);

  const Matrix<float16> of_expanded = result();
  const AxisInput<float16> whole{x.expanded()};
  const Dot<float16> expanded({&whole, 1}, dim, {}, of_expanded);
  std::vector<Baseline> baselines;
  if (user_fields > 0)
    baselines.push_back({"expanded",
                         {in_sequence({queue_row_programs(run, x.expansion()),
                                       [&](device::Stream stream) { expanded.launch({}, stream); }}),
                          check(of_expanded)}});
  const auto outputs = static_cast<double>(x.num_items() * columns);
  run.measure({x.bytes() + 2 * outputs, 2 * outputs * static_cast<double>(dim)}, call_by(usual_policies()), baselines);
}

}  // namespace

void add_benchmarks() {
  const int64_t shapes[][3] = {{0, 27, 128}, {13, 14, 16}, {13, 14, 128}, {24, 36, 16}};
  for (const auto& [users, items_of, dim] : shapes)
    for (const auto& [requests, items] : request_sizes())
      add("dot/" + request_name(requests, items) + "/user_fields:" + std::to_string(users) +
              "/item_fields:" + std::to_string(items_of) + "/dim:" + std::to_string(dim),
          [requests = requests, items = items, users = users, of_items = items_of, dim = dim](Run& run) {
            dot(run, requests, items, users, of_items, dim);
          });

  using Policies = LaunchPolicies;
  using Sizes = std::vector<std::pair<int64_t, int64_t>>;
  const auto add_sweeps = [](const PolicySweep& sweep, const Sizes& sizes, const std::vector<int64_t>& dims) {
    for (const auto& [requests, items] : sizes)
      for (const int64_t dim : dims)
        add_policy(sweep,
                   "dot/" + request_name(requests, items) + "/user_fields:13/item_fields:14/dim:" + std::to_string(dim),
                   [requests = requests, items = items, dim](Run& run, const PolicySweep* of) {
                     dot(run, requests, items, 13, 14, dim, of);
                   });
  };
  add_sweeps({"dot_rows_of_one_each", &Policies::dot_rows_of_one_each, {0, no_limit}}, sizes_of_sweeps(), {16, 128});
  const std::vector<int> several{1, 2, 3, 4, 6, 8};
  add_sweeps({"dot_rows_per_warp", &Policies::dot_rows_per_warp, several}, many_rows_of_sweeps(), {16, 32});
  add_sweeps({"dot_rows_per_warp_wide", &Policies::dot_rows_per_warp_wide, several}, many_rows_of_sweeps(), {64, 128});
}

}  // namespace warprank::bench
