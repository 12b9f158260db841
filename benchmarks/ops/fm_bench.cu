// SPDX-License-Identifier: Apache-2.0

// The factorisation machine over the fields of a user and of its items, against the same where the user's fields are
// first repeated for every item, as without late broadcast.

#include <cstdint>
#include <string>
#include <vector>

#include "measure_cuda.cuh"
#include "reference/fm.hpp"
#include "row_launches.cuh"
#include "user_and_items.cuh"
#include "warprank/ops/fm.cuh"

namespace warprank::bench {
namespace {

void fm(Run& run, int64_t requests, int64_t items, int64_t dim) {
  const UserAndItems x(run, requests, items, 24 * dim, 36 * dim);
  const auto result = [&] { return Matrix<half>(run.allocate<half>(x.num_items()), x.num_items(), 1); };
  const Matrix<half> y = result(), of_expanded = result();
  const auto inputs = x.inputs();
  const Fm<half, half> split(inputs, dim, y);
  const AxisInput<half> whole{x.expanded()};
  const Fm<half, half> expanded({&whole, 1}, dim, of_expanded);

  const std::vector<int64_t> some = some_rows(x.num_items());
  const std::vector<float> rows = x.rows(some);
  const SegmentedInput input{{rows.data(), static_cast<int64_t>(some.size()), 60 * dim}};
  const reference::Bounded expected = reference::fm({&input, 1}, dim, true, input.values.rows);
  const auto check = [&](Matrix<half> to) {
    return [&, to] { expect_within<half>("fm", expected, select_rows(run.read(to.data, x.num_items()), 1, some), 1); };
  };
  run.measure(
      {x.bytes() + 2.0 * static_cast<double>(x.num_items())},
      {[&](device::Stream stream) { split.launch(stream); }, check(y)},
      {{"expanded",
        {in_sequence({queue_row_programs(run, x.expansion()), [&](device::Stream stream) { expanded.launch(stream); }}),
         check(of_expanded)}}});
}

}  // namespace

void add_benchmarks() {
  for (const auto& [requests, items] : request_sizes())
    for (const int64_t dim : {16, 64})
      add("fm/" + request_name(requests, items) + "/dim:" + std::to_string(dim),
          [=, requests = requests, items = items](Run& run) { fm(run, requests, items, dim); });
}

}  // namespace warprank::bench
