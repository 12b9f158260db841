// SPDX-License-Identifier: Apache-2.0

// Dot products of all pairs of fields of users and items, against the same where the user's fields are first repeated
// for every item, as without late broadcast; and DLRM's 27 fields of 128, all of items.

#include <cstdint>
#include <string>
#include <vector>

#include "measure_cuda.cuh"
#include "reference/dot.hpp"
#include "row_launches.cuh"
#include "user_and_items.cuh"
#include "warprank/ops/dot.cuh"

namespace warprank::bench {
namespace {

void dot(Run& run, int64_t requests, int64_t items, int64_t user_fields, int64_t item_fields, int64_t dim) {
  const UserAndItems x(run, requests, items, user_fields * dim, item_fields * dim);
  const int64_t fields = user_fields + item_fields, columns = num_dot_pairs(fields, DotOrder::lower, false);
  const auto result = [&] { return Matrix<half>(run.allocate<half>(x.num_items() * columns), x.num_items(), columns); };
  const Matrix<half> y = result(), of_expanded = result();
  std::vector<AxisInput<half>> inputs = x.inputs();
  if (user_fields == 0) inputs.erase(inputs.begin());
  const Dot<half> split(inputs, dim, DotOrder::lower, false, y);
  const AxisInput<half> whole{x.expanded()};
  const Dot<half> expanded({&whole, 1}, dim, DotOrder::lower, false, of_expanded);

  const std::vector<int64_t> some = some_rows(x.num_items());
  const std::vector<float> rows = x.rows(some);
  const SegmentedInput input{{rows.data(), static_cast<int64_t>(some.size()), fields * dim}};
  const reference::Bounded expected = reference::dot({&input, 1}, dim, DotOrder::lower, false, input.values.rows);
  const auto check = [&](Matrix<half> to) {
    return [&, to] {
      expect_within<half>("dot", expected, select_rows(run.read(to.data, x.num_items() * columns), columns, some), 2);
    };
  };
  std::vector<Baseline> baselines;
  if (user_fields > 0)
    baselines.push_back({"expanded",
                         {in_sequence({queue_row_programs(run, x.expansion()),
                                       [&](device::Stream stream) { expanded.launch(stream); }}),
                          check(of_expanded)}});
  const auto outputs = static_cast<double>(x.num_items() * columns);
  run.measure({x.bytes() + 2 * outputs, 2 * outputs * static_cast<double>(dim)},
              {[&](device::Stream stream) { split.launch(stream); }, check(y)}, baselines);
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
}

}  // namespace warprank::bench
