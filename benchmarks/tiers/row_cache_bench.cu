// SPDX-License-Identifier: Apache-2.0

// Look-ups in tables whose rows lie in the host's memory, with caches of 50, 10 and 1 % of the table's bytes on the
// device, against the same table in device memory and without a cache; of keys that are asked for evenly and by Zipf
// distributions. Caches are as passes over other batches have left them. Beside the usual counters:
//
//     hit_ratio    rows that were found on the device, of all
//     bus_bytes    of the rows that were not

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "support/zipf.hpp"
#include "tiers/placed_rows.cuh"

namespace warprank::bench {
namespace {

void look_up(Run& run, int64_t row_bytes, int64_t percent, double alpha) {
  const int64_t count = size_for(1 << 17, 256),
                num_rows = size_for(int64_t{512} << 20, int64_t{2000} * row_bytes) / row_bytes;
  const int num_passes = static_cast<int>(size_for(1000, 3));
  Rows rows(num_rows, row_bytes / 2);
  for (int64_t row = 0; row < num_rows; ++row) rows.write(row);
  const int64_t least = least_cache_bytes(DType::f16, rows.dim);
  const auto cached = rows.load({Placement::cached, std::max(least, rows.bytes() / 100 * percent)});
  const auto on_device = rows.load({});
  const auto on_host = rows.load({Placement::host, 0});
  LookUps ours(run, *cached, rows, count), in_device(run, *on_device, rows, count), in_host(run, *on_host, rows, count);

  const test_support::Zipf zipf(num_rows, alpha);
  std::mt19937_64 random(1);
  const auto draw = [&] { return draw_ids(zipf, count, random); };
  for (int pass = 0; pass < num_passes; ++pass) {
    ours.set_ids(draw());
    ours.run_once();
    cached->pass_over_caches();
  }
  const std::vector<int64_t> ids = draw();
  for (LookUps* some : {&ours, &in_device, &in_host}) some->set_ids(ids);
  measure_cached(run, *cached, ids, row_bytes, ours, in_device, in_host);
}

}  // namespace

void add_benchmarks() {
  for (const int64_t row_bytes : {64, 256})
    for (const int64_t percent : {50, 10, 1})
      for (const int alpha : {0, 105, 115})
        add("row_cache/row_bytes:" + std::to_string(row_bytes) + "/percent:" + std::to_string(percent) +
                "/zipf:" + std::to_string(alpha),
            [=](Run& run) { look_up(run, row_bytes, percent, alpha / 100.0); });
}

}  // namespace warprank::bench
