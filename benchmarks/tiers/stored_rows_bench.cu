// SPDX-License-Identifier: Apache-2.0

// Look-ups in tables whose rows lie in a store in this process, half of their bytes in the host's memory and 10 or 1 %
// on the device, against the same table in device memory and in the host's; of keys that are asked for evenly and by
// Zipf distributions. Both memories are as passes over other batches have left them, and have all rows that are asked
// for. Beside the usual counters:
//
//     hit_ratio    rows that were found on the device, of all
//     bus_bytes    of the rows that were not

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "support/zipf.hpp"
#include "tiers/placed_rows.cuh"

namespace warprank::bench {
namespace {

/// Has the rows, which nobody changes.
class StoreOfRows final : public ParameterStore {
 public:
  explicit StoreOfRows(const Rows& rows) : rows_(rows) {}

  std::optional<StoredRows> describe(const std::string&, Deadline) override {
    return StoredRows{DType::f16, rows_.dim};
  }
  void create(const StoredTable&, Deadline) override {}
  void get(const StoredTable&, Span<const int64_t> keys, unsigned char* rows, StoreStatus* statuses,
           Deadline) override {
    const int64_t row_bytes = 2 * rows_.dim;
    for (int64_t i = 0; i < keys.size(); ++i) {
      statuses[i] = StoreStatus::ok;
      std::memcpy(rows + i * row_bytes, rows_.bits() + keys[i] * rows_.dim, static_cast<size_t>(row_bytes));
    }
  }
  void put(const StoredTable&, Span<const int64_t> keys, const unsigned char*, StoreStatus* statuses,
           Deadline) override {
    std::fill_n(statuses, keys.size(), StoreStatus::failed);
  }
  void erase(const StoredTable&, Span<const int64_t> keys, StoreStatus* statuses, Deadline) override {
    std::fill_n(statuses, keys.size(), StoreStatus::failed);
  }
  std::unique_ptr<ChangePublisher> publish_changes(const StoredTable&) override { return nullptr; }
  std::unique_ptr<ChangeReader> read_changes(std::vector<FollowedTable>) override { return nullptr; }
  std::string end_of_changes(const std::string&, Deadline) override { return "0-0"; }

 private:
  const Rows& rows_;
};

void look_up(Run& run, int64_t row_bytes, int64_t percent, double alpha) {
  const int64_t count = size_for(1 << 17, 256),
                num_rows = size_for(int64_t{512} << 20, int64_t{2000} * row_bytes) / row_bytes;
  const int num_passes = static_cast<int>(size_for(1000, 3));
  Rows rows(num_rows, row_bytes / 2);
  for (int64_t row = 0; row < num_rows; ++row) rows.write(row);
  const int64_t least = least_cache_bytes(DType::f16, rows.dim);
  const auto stored = rows.load(std::make_shared<StoreOfRows>(rows), std::max(8 * least, rows.bytes() / 2),
                                std::max(least, rows.bytes() / 100 * percent));
  const auto on_device = rows.load({});
  const auto on_host = rows.load({Placement::host, 0});
  LookUps ours(run, *stored, rows, count), in_device(run, *on_device, rows, count), in_host(run, *on_host, rows, count);

  const test_support::Zipf zipf(num_rows, alpha);
  std::mt19937_64 random(1);
  const auto draw = [&] { return draw_ids(zipf, count, random); };
  for (int pass = 0; pass < num_passes; ++pass) {
    ours.set_ids(draw());
    ours.run_once();
    stored->pass_over_caches();
  }
  const std::vector<int64_t> ids = draw();
  for (LookUps* some : {&ours, &in_device, &in_host}) some->set_ids(ids);
  const auto absent = [&] {
    const int64_t before = stored->store_counters().at("t").misses;
    ours.run_once();
    stored->pass_over_caches();
    return stored->store_counters().at("t").misses - before;
  };
  int turns = 0;
  while (absent() > 0)
    if (++turns == 10000) throw WrongResult("rows of a store do not come to the host's memory");
  measure_cached(run, *stored, ids, row_bytes, ours, in_device, in_host);
}

}  // namespace

void add_benchmarks() {
  for (const int64_t row_bytes : {64, 256})
    for (const int64_t percent : {10, 1})
      for (const int alpha : {0, 105, 115})
        add("stored_rows/row_bytes:" + std::to_string(row_bytes) + "/percent:" + std::to_string(percent) +
                "/zipf:" + std::to_string(alpha),
            [=](Run& run) { look_up(run, row_bytes, percent, alpha / 100.0); });
}

}  // namespace warprank::bench
