// SPDX-License-Identifier: Apache-2.0

// Hash tables of 10 million random keys with rows of 64 bytes: look-ups against absl::flat_hash_map, and the bulk
// build.
//
// The rows of bags of 16 keys are added up, by find_rows and by embedding_bag. Both tables have huge pages; ours has
// load factor 0.67, Abseil's has 10 / 16.8 = 0.60. Abseil's own prefetch is called 8 to 32 keys ahead; "two stages"
// adds what Abseil does not offer, a prefetch of the row that was found a bag before it is added. All run in turns over
// the same keys and the fastest turns are compared.
//
//     absl_ratio = (fastest time of Abseil with its prefetch) / (fastest time of ours)

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "measure.hpp"
#include "support/zipf.hpp"
#include "warprank/core/buffer.hpp"
#include "warprank/core/prefetch.hpp"
#include "warprank/hash_table/build.hpp"
#include "warprank/ops/host/embedding_bag.hpp"
#include "warprank/ops/host/hash_table.hpp"

#if defined(WARPRANK_HAVE_ABSL)
#include <absl/container/flat_hash_map.h>
#endif

namespace {

using namespace warprank;

constexpr int64_t num_keys = 10'000'000, dim = 16, num_wanted = 1 << 20, bag = 16;
constexpr double load_factor = 0.67;

struct Row {
  float x[dim];
};

struct Data {
  Data() : keys(num_keys), rows(num_keys) {
    std::mt19937_64 random(1);
    for (int64_t i = 0; i < num_keys; ++i) {
      keys[i] = static_cast<int64_t>(random());
      for (int64_t c = 0; c < dim; ++c) rows[i].x[c] = static_cast<float>(i % 1000 + c);
    }
  }
  HashTableChunk all() const { return {num_keys, keys.data(), rows.data()}; }

  Buffer<int64_t> keys;
  Buffer<Row> rows;
};

const Data& data() {
  static const Data d;
  return d;
}

void build(benchmark::State& state) {
  HashTableOptions options;
  options.load_factor = static_cast<double>(state.range(0)) / 100;
  options.threads = 1;
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const double start = bench::thread_seconds();
    const HashTable table = build_hash_table({DType::f32, dim}, data().all(), options);
    const double elapsed = bench::thread_seconds() - start;
    benchmark::DoNotOptimize(table.size());
    best = std::min(best, elapsed);
    state.SetIterationTime(elapsed);
  }
  state.counters["million_rows_per_second"] = num_keys / best * 1e-6;
}
BENCHMARK(build)
    ->Name("hash_table/build")
    ->ArgName("load_percent")
    ->Arg(67)
    ->Arg(95)
    ->Iterations(3)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

/// Look-ups alone, of tables with a tenth of the keys. Arguments: load factor, hits of a hundred, and a hundred times
/// the alpha of the keys' Zipf distribution.
void find_rows(benchmark::State& state) {
  constexpr int64_t keys_of_table = num_keys / 10;
  HashTableOptions options;
  options.load_factor = static_cast<double>(state.range(0)) / 100;
  const HashTable table =
      build_hash_table({DType::f32, dim}, {keys_of_table, data().keys.data(), data().rows.data()}, options);
  const test_support::Zipf zipf(keys_of_table, static_cast<double>(state.range(2)) / 100);
  std::mt19937_64 random(2);
  std::vector<int64_t> wanted(num_wanted);
  int64_t expected = 0, found = 0;
  for (int64_t& key : wanted) {
    const bool hit = static_cast<int64_t>(random() % 100) < state.range(1);
    key = hit ? data().keys[zipf(random)] : static_cast<int64_t>(random());
    expected += hit;
  }
  constexpr int64_t block = 1024;
  std::vector<const unsigned char*> rows(block);
  const auto run = [&] {
    found = 0;
    for (int64_t begin = 0; begin < num_wanted; begin += block) {
      host_ops::find_rows(table.view(), {wanted.data() + begin, block}, rows.data());
      for (const unsigned char* row : rows) found += row != nullptr;
    }
  };
  bench::Minimum time;
  for (auto _ : state) state.SetIterationTime(time.sample(run, 1));
  if (found != expected) state.SkipWithError("keys are missing");
  state.counters["find_rows_ns"] = time.value() / num_wanted * 1e9;
}
BENCHMARK(find_rows)
    ->Name("hash_table/find_rows")
    ->ArgNames({"load_percent", "hit_percent", "alpha_percent"})
    ->ArgsProduct({{50, 80, 95}, {100, 50, 0}, {0}})
    ->Args({80, 100, 105})
    ->Args({80, 100, 115})
    ->Iterations(10)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

#if defined(WARPRANK_HAVE_ABSL)

void add(Row& sum, const Row& row) {
  for (int64_t c = 0; c < dim; ++c) sum.x[c] += row.x[c];
}

/// Adds up the rows of each bag.
using Pool = void (*)(const std::vector<int64_t>& wanted, Row* sums);

const HashTable& our_table() {
  static const HashTable table = [] {
    HashTableOptions options;
    options.load_factor = load_factor;
    return build_hash_table({DType::f32, dim}, data().all(), options);
  }();
  return table;
}

void pool_found_rows(const std::vector<int64_t>& wanted, Row* sums) {
  constexpr int64_t block = 1024;
  std::array<const unsigned char*, block> rows;
  for (int64_t begin = 0; begin < num_wanted; begin += block) {
    host_ops::find_rows(our_table().view(), {wanted.data() + begin, block}, rows.data());
    for (int64_t i = 0; i < block; i += bag) {
      Row sum{};
      for (int64_t k = i; k < i + bag; ++k)
        if (rows[k] != nullptr) add(sum, *reinterpret_cast<const Row*>(rows[k]));
      sums[(begin + i) / bag] = sum;
    }
  }
}

void pool_by_embedding_bag(const std::vector<int64_t>& wanted, Row* sums) {
  static const std::vector<int64_t> offsets = [] {
    std::vector<int64_t> list;
    for (int64_t i = 0; i <= num_wanted; i += bag) list.push_back(i);
    return list;
  }();
  host_ops::BagFeature feature;
  feature.table.type = DType::f32;
  feature.table.dim = dim;
  feature.hashed = &our_table().view();
  feature.ids = wanted;
  feature.bags = {offsets.data(), num_wanted / bag};
  feature.pooling = Pooling::sum;
  feature.y = {sums->x, num_wanted / bag, dim};
  host_ops::embedding_bag({&feature, 1});
}

/// Memory as Buffer has it.
template <class Value>
struct HugePages {
  using value_type = Value;
  HugePages() = default;
  template <class Other>
  HugePages(const HugePages<Other>&) {}
  Value* allocate(size_t size) {
    constexpr size_t page = size_t{2} << 20;
    const size_t bytes = (size * sizeof(Value) + page - 1) / page * page;
    void* data = std::aligned_alloc(page, bytes);
    madvise(data, bytes, MADV_HUGEPAGE);
    return static_cast<Value*>(data);
  }
  void deallocate(Value* data, size_t) { std::free(data); }
  friend bool operator==(const HugePages&, const HugePages&) { return true; }
  friend bool operator!=(const HugePages&, const HugePages&) { return false; }
};
using AbslMap = absl::flat_hash_map<int64_t, Row, absl::Hash<int64_t>, std::equal_to<int64_t>,
                                    HugePages<std::pair<const int64_t, Row>>>;

const AbslMap& absl_map() {
  static const AbslMap map = [] {
    AbslMap filled(num_keys);
    for (int64_t i = 0; i < num_keys; ++i) filled.emplace(data().keys[i], data().rows[i]);
    return filled;
  }();
  return map;
}

const Row* find_in_absl(const AbslMap& map, int64_t key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

template <int64_t Distance>
void pool_absl(const std::vector<int64_t>& wanted, Row* sums) {
  const AbslMap& map = absl_map();
  for (int64_t begin = 0; begin < num_wanted; begin += bag) {
    Row sum{};
    for (int64_t i = begin; i < begin + bag; ++i) {
      if (i + Distance < num_wanted) map.prefetch(wanted[i + Distance]);
      if (const Row* row = find_in_absl(map, wanted[i])) add(sum, *row);
    }
    sums[begin / bag] = sum;
  }
}

/// Rows are found, and fetched, a bag before they are added.
template <int64_t Distance>
void pool_absl_in_two_stages(const std::vector<int64_t>& wanted, Row* sums) {
  const AbslMap& map = absl_map();
  std::array<const Row*, 2 * bag> rows;
  const auto find_one = [&](int64_t i) {
    if (i + Distance < num_wanted) map.prefetch(wanted[i + Distance]);
    const Row* row = rows[i % rows.size()] = find_in_absl(map, wanted[i]);
    if (row != nullptr) prefetch(row, sizeof(Row));
  };
  for (int64_t i = 0; i < bag; ++i) find_one(i);
  for (int64_t begin = 0; begin < num_wanted; begin += bag) {
    Row sum{};
    for (int64_t i = begin; i < begin + bag; ++i) {
      if (i + bag < num_wanted) find_one(i + bag);
      if (const Row* row = rows[i % rows.size()]) add(sum, *row);
    }
    sums[begin / bag] = sum;
  }
}

constexpr std::array<Pool, 8> pools{pool_found_rows,
                                    pool_by_embedding_bag,
                                    pool_absl<8>,
                                    pool_absl<16>,
                                    pool_absl<32>,
                                    pool_absl_in_two_stages<8>,
                                    pool_absl_in_two_stages<16>,
                                    pool_absl_in_two_stages<32>};

void find(benchmark::State& state) {
  std::mt19937_64 random(2);
  std::vector<int64_t> wanted(num_wanted);
  for (int64_t& key : wanted)
    key = static_cast<int64_t>(random() % 100) < state.range(0)
              ? data().keys[static_cast<int64_t>(random() % static_cast<uint64_t>(num_keys))]
              : static_cast<int64_t>(random());

  std::vector<Row> expected(num_wanted / bag), sums(num_wanted / bag);
  pools[0](wanted, expected.data());
  std::array<bench::Minimum, pools.size()> seconds;
  for (auto _ : state)
    for (size_t p = 0; p < pools.size(); ++p) {
      const double elapsed = seconds[p].sample([&] { pools[p](wanted, sums.data()); }, 1);
      if (p == 0) state.SetIterationTime(elapsed);
      if (std::memcmp(sums.data(), expected.data(), sums.size() * sizeof(Row)) != 0)
        state.SkipWithError("the tables differ");
    }
  const auto fastest = [&](size_t begin, size_t end) {
    double best = seconds[begin].value();
    for (size_t p = begin; p < end; ++p) best = std::min(best, seconds[p].value());
    return best;
  };
  const double ours = fastest(0, 2), absl = fastest(2, 5), absl_two_stages = fastest(5, 8);
  state.counters["find_rows_ns"] = seconds[0].value() / num_wanted * 1e9;
  state.counters["embedding_bag_ns"] = seconds[1].value() / num_wanted * 1e9;
  state.counters["absl_ns"] = absl / num_wanted * 1e9;
  state.counters["absl_two_stages_ns"] = absl_two_stages / num_wanted * 1e9;
  state.counters["absl_load_factor"] = absl_map().load_factor();
  state.counters["absl_ratio"] = absl / ours;
  state.counters["absl_two_stages_ratio"] = absl_two_stages / ours;
}

#else
void find(benchmark::State& state) { state.SkipWithError("skipped: needs Abseil (libabsl-dev) to compare with"); }
#endif
BENCHMARK(find)
    ->Name("hash_table/find")
    ->ArgName("hit_percent")
    ->Arg(100)
    ->Arg(50)
    ->Iterations(25)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
