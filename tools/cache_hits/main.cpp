// SPDX-License-Identifier: Apache-2.0

// How many of the ids on standard input, 64 bits each, a cache of a table's rows on a device would find: of
// tools/plan_cache.py. Which keys the cache has is what the CUDA engine's own rules choose; simulated is what look-ups
// and updates do on a card, with two simplifications. Of keys of a bucket that a batch finds one alone is marked, as if
// all look-ups of a batch were made at the same time; and what a row that was evicted leaves is free at once. Every id
// has a row.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/engine/cuda/cache_admission.hpp"
#include "warprank/hash_table/layout.hpp"

namespace {

using namespace warprank;                // NOLINT: of a program of its own
using namespace warprank::cuda_backend;  // NOLINT: likewise

class SimulatedCache {
 public:
  explicit SimulatedCache(uint64_t num_buckets)
      : placement_(cache_placement(num_buckets)), buckets_(num_buckets), admission_(num_buckets) {}

  /// Looks up what comes between two passes, `batch` ids at a time, then makes the pass. Returns how many it has found.
  int64_t look_up(Span<const uint64_t> ids, int64_t batch) {
    std::vector<std::pair<uint64_t, uint64_t>> missed;
    for (int64_t begin = 0; begin < ids.size(); begin += batch) {
      std::unordered_map<uint64_t, int> marked;
      for (int64_t i = begin; i < std::min(begin + batch, ids.size()); ++i) {
        const uint64_t key = ids[i];
        const auto held = keys_.find(key);
        if (held == keys_.end())
          missed.emplace_back(key, first_bucket(key));
        else if ((buckets_[held->second.bucket].found >> held->second.position & 1) == 0)
          marked[held->second.bucket] = held->second.position;
      }
      for (const auto& [bucket, position] : marked) buckets_[bucket].found |= 1u << position;
    }
    const auto num_missed = static_cast<int64_t>(missed.size());
    if (missed.size() > mark_capacity) missed.resize(mark_capacity);
    make_pass(std::move(missed));
    return ids.size() - num_missed;
  }

 private:
  struct Bucket {
    std::array<std::optional<uint64_t>, row_cache::num_positions> keys;
    uint32_t found = 0;  // since a pass saw the bucket, by position
  };
  struct Place {
    uint64_t bucket;
    int position;
  };

  uint64_t first_bucket(uint64_t key) const { return placement_.first_bucket(placement_.hash(key)); }

  void make_pass(std::vector<std::pair<uint64_t, uint64_t>> missed) {
    std::unordered_map<uint64_t, CacheBucket> seen;
    for (const auto& [key, index] : missed) {
      const auto [at, is_new] = seen.try_emplace(index);
      if (!is_new) continue;
      Bucket& bucket = buckets_[index];
      for (int p = 0; p < row_cache::num_positions; ++p)
        if (bucket.keys[static_cast<size_t>(p)]) at->second.add(*bucket.keys[static_cast<size_t>(p)], p);
      at->second.add_use(std::exchange(bucket.found, 0));
    }
    const auto num_keys = static_cast<int64_t>(keys_.size());
    const auto choice = admission_.choose(std::move(missed), seen, num_keys, [](uint64_t) { return true; });
    for (const uint64_t key : choice.victims) erase(key);
    for (const uint64_t key : choice.admitted) insert(key);
    admission_.forget();
  }

  void erase(uint64_t key) {
    const Place place = keys_.at(key);
    buckets_[place.bucket].keys[static_cast<size_t>(place.position)].reset();
    buckets_[place.bucket].found &= ~(1u << place.position);
    keys_.erase(key);
  }
  /// Where there is room.
  void insert(uint64_t key) {
    const uint64_t hash = placement_.hash(key);
    for (const uint64_t index : {placement_.first_bucket(hash), placement_.second_bucket(hash)}) {
      auto& keys = buckets_[index].keys;
      const auto room = std::find(keys.begin(), keys.end(), std::nullopt);
      if (room == keys.end()) continue;
      *room = key;
      keys_[key] = {index, static_cast<int>(room - keys.begin())};
      return;
    }
  }

  hash_table::Placement placement_;
  std::vector<Bucket> buckets_;
  std::unordered_map<uint64_t, Place> keys_;
  CacheAdmission admission_;
};

std::vector<uint64_t> read_ids() {
  std::vector<uint64_t> ids, some(1 << 16);
  while (const size_t count = std::fread(some.data(), sizeof(uint64_t), some.size(), stdin))
    ids.insert(ids.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count));
  return ids;
}

/// From all rows down by halves, ten at most.
std::vector<int64_t> budgets_for(int64_t rows, int64_t bucket_bytes) {
  const int64_t least = static_cast<int64_t>(hash_table::min_buckets) * bucket_bytes;
  std::vector<int64_t> budgets{std::max(least, (rows / keys_of_a_bucket + 1) * bucket_bytes)};
  while (budgets.size() < 10 && budgets.back() / 2 >= least) budgets.push_back(budgets.back() / 2);
  return {budgets.rbegin(), budgets.rend()};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Predicts hits of a cache of rows. Prints bytes on the device, hits, and the look-ups that were counted.");
  int64_t row_bytes = 0, rows = 0, batch = 0, per_pass = 0, skip = 0;
  std::vector<int64_t> budgets;
  app.add_option("--row-bytes", row_bytes, "Bytes of a row")
      ->required()
      ->check(CLI::Range(hash_table::min_row_bytes, hash_table::max_row_bytes));
  app.add_option("--rows", rows, "Rows of the table")->required()->check(CLI::PositiveNumber);
  app.add_option("--batch", batch, "Look-ups of a batch")->required()->check(CLI::PositiveNumber);
  app.add_option("--ids-per-pass", per_pass, "Look-ups between passes")->required()->check(CLI::PositiveNumber);
  app.add_option("--skip", skip, "Ids that come before any is counted; of whole passes")->check(CLI::NonNegativeNumber);
  app.add_option("--bytes", budgets, "Budgets; otherwise all rows, and by halves");
  CLI11_PARSE(app, argc, argv);
  try {
    const std::vector<uint64_t> ids = read_ids();
    const int64_t bucket_bytes = hash_table::shape_of(row_bytes, true).bucket_bytes;
    const int64_t least = static_cast<int64_t>(hash_table::min_buckets) * bucket_bytes;
    if (budgets.empty()) budgets = budgets_for(rows, bucket_bytes);
    std::sort(budgets.begin(), budgets.end());
    if (budgets[0] < least)
      throw invalid_argument("--bytes", "at least " + std::to_string(least) + ", 4 buckets of its rows",
                             std::to_string(budgets[0]));
    for (const int64_t budget : budgets) {
      const uint64_t num_buckets = cache_buckets(bucket_bytes, rows, budget);
      SimulatedCache cache(num_buckets);
      int64_t hits = 0, counted = 0;
      for (int64_t begin = 0; begin < static_cast<int64_t>(ids.size()); begin += per_pass) {
        const int64_t count = std::min(per_pass, static_cast<int64_t>(ids.size()) - begin);
        const int64_t found = cache.look_up({ids.data() + begin, count}, batch);
        if (begin < skip) continue;
        hits += found;
        counted += count;
      }
      std::printf("%lld %lld %lld\n", static_cast<long long>(num_buckets) * bucket_bytes, static_cast<long long>(hits),
                  static_cast<long long>(counted));
      std::fflush(stdout);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
