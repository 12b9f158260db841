// SPDX-License-Identifier: Apache-2.0

// Look-ups against the size of a table, of 100 thousand to a billion rows of 16 bytes in the host's memory, at equal
// hits: of 131,072 rows nine of ten are drawn from 65,536, which are on the device, and the others from all others. So
// the time is to be the same. A size for which there is not enough memory to pin is skipped. Beside the usual
// counters:
//
//     hit_ratio    rows that were found on the device, of all

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "tiers/placed_rows.cuh"

namespace warprank::bench {
namespace {

void look_up(Run& run, int64_t num_rows) {
  constexpr int64_t dim = 8, row_bytes = 2 * dim;
  const int64_t count = size_for(1 << 17, 512), num_hot = size_for(1 << 16, 64);
  const int64_t apart = num_rows / num_hot;
  std::mt19937_64 random(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const auto is_hot = [&](int64_t row) { return row % apart == 0 && row / apart < num_hot; };
  const auto draw = [&](int64_t tenths_hot) {
    std::vector<int64_t> ids(static_cast<size_t>(count));
    for (int64_t& id : ids) {
      const bool wants_hot = below(10) < tenths_hot;
      do id = wants_hot ? below(num_hot) * apart : below(num_rows);
      while (is_hot(id) != wants_hot);
    }
    return ids;
  };
  const std::vector<int64_t> ids = draw(9);
  Rows rows(num_rows, dim);
  for (size_t i = 0; i < ids.size(); i += ids.size() / 64) rows.write(ids[i]);
  const int64_t bucket = cache_shape(DType::f16, dim).bucket_bytes;
  const auto cached =
      rows.load({Placement::cached, std::max(num_hot / 6 * bucket, least_cache_bytes(DType::f16, dim))});
  LookUps look_ups(run, *cached, rows, count);
  for (int64_t pass = 0; pass < size_for(64, 4); ++pass) {
    look_ups.set_ids(draw(10));
    look_ups.run_once();
    cached->pass_over_caches();
  }
  look_ups.set_ids(ids);
  const CacheCounters before = cached->cache_counters().at("t");
  look_ups.run_once();
  const CacheCounters counters = counted_since(before, *cached, count);
  run.count("hit_ratio", static_cast<double>(counters.hits) / static_cast<double>(count));

  const auto bytes = [&](size_t looked_up) {
    return static_cast<double>(static_cast<int64_t>(looked_up) * row_bytes + count * (8 + row_bytes));
  };
  Work work{bytes(std::unordered_set<int64_t>(ids.begin(), ids.end()).size())};
  work.requested_bytes = bytes(ids.size());
  run.measure(work, look_ups.call());
}

}  // namespace

void add_benchmarks() {
  for (int64_t rows = 100'000; rows <= 1'000'000'000; rows *= 10)
    add("growth/rows:" + std::to_string(rows), [rows](Run& run) { look_up(run, size_for(rows, rows / 1000)); });
}

}  // namespace warprank::bench
