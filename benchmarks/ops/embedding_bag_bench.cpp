// SPDX-License-Identifier: Apache-2.0

// embedding_bag against the machine's own limit, the rate of independent random cache lines: 80 FP16 tables with rows
// of 8 to 32 elements, 4 GB in all, bags of 1 to 50 ids; 40 features of the user (one bag a request) and 40 of its 100
// items. Both run in turns over the same memory, random lines in several ways. What other machines on the same memory
// leave of it changes from moment to moment, so that turns are compared with themselves:
//
//     random_line_fraction = the median over turns of
//                            (cache lines that the rows lie in) x (time of a random line) / (time of the call)
//
// for the way of random lines where it is least.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "measure.hpp"
#include "warprank/core/buffer.hpp"
#include "warprank/core/prefetch.hpp"
#include "warprank/ops/host/embedding_bag.hpp"
#include "warprank/ops/scaled_rows.hpp"
#include "workloads.hpp"

namespace {

using namespace warprank;
using host_ops::BagFeature;

constexpr int64_t num_features = 80, num_items = 100, max_bag = 50, num_requests = 16;
constexpr int64_t line = 64, total_bytes = int64_t{4} << 30, table_bytes = total_bytes / num_features / line * line;

const Buffer<unsigned char>& memory() {
  static const Buffer<unsigned char> buffer = [] {
    Buffer<unsigned char> b(total_bytes);
    std::memset(b.data(), 0x11, static_cast<size_t>(b.size()));  // small FP16 numbers
    return b;
  }();
  return buffer;
}

template <class Body>
double seconds_of(Body&& body) {
  const double start = bench::thread_seconds();
  body();
  return bench::thread_seconds() - start;
}

/// Reads `count` random lines, each asked for by `fetch` Distance reads before.
template <int64_t Distance, class Fetch>
void read_random_lines(int64_t count, uint64_t& state, Fetch fetch) {
  constexpr uint64_t num_lines = total_bytes / line;
  static_assert((num_lines & (num_lines - 1)) == 0);
  const unsigned char* const base = memory().data();
  const unsigned char* ahead[Distance];
  const auto fetch_next = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator; its high bits are good
    const unsigned char* address = base + (state >> 38) % num_lines * line;
    fetch(address);
    return address;
  };
  for (auto& address : ahead) address = fetch_next();
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; i += Distance)
    for (auto& address : ahead) {
      sum += *reinterpret_cast<const uint64_t*>(address);
      address = fetch_next();
    }
  benchmark::DoNotOptimize(sum);
}

/// In every way.
constexpr size_t num_ways = 5;
std::array<double, num_ways> seconds_of_random_lines(int64_t count, uint64_t& state) {
  const auto first_level = [](const void* address) { prefetch(address); };
  const auto second_level = [](const void* address) { prefetch_second_level(address); };
  return {seconds_of([&] { read_random_lines<32>(count, state, first_level); }),
          seconds_of([&] { read_random_lines<64>(count, state, first_level); }),
          seconds_of([&] { read_random_lines<128>(count, state, first_level); }),
          seconds_of([&] { read_random_lines<64>(count, state, second_level); }),
          seconds_of([&] { read_random_lines<128>(count, state, second_level); })};
}

/// The features of requests that are served together.
struct Call {
  std::vector<std::vector<int64_t>> ids{num_features}, offsets{num_features};
  std::vector<BagFeature> features;

  int64_t num_ids = 0;
  int64_t row_lines = 0;  // cache lines in which the rows of the ids lie
};

int64_t lines_of_row(const TableView& table, int64_t row) {
  const auto begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(table.row(row)));
  return (begin + table.row_bytes() - 1) / line - begin / line + 1;
}

Call make_call(std::mt19937_64& random, Matrix<float> user, Matrix<float> item) {
  Call call;
  int64_t user_column = 0, item_column = 0;
  for (int64_t f = 0; f < num_features; ++f) {
    const int64_t dim = 8 + 24 * (f / 2) / (num_features / 2 - 1);
    const bool of_user = f % 2 == 0;
    BagFeature feature;
    feature.table = {DType::f16, memory().data() + f * table_bytes, table_bytes / (2 * dim), dim, 2 * dim};
    feature.pooling = Pooling::mean;
    int64_t& column = of_user ? user_column : item_column;
    feature.y = (of_user ? user : item).columns(column, dim);
    column += dim;
    std::vector<int64_t>&ids = call.ids[f], &offsets = call.offsets[f];
    offsets.push_back(0);
    for (int64_t b = 0; b < feature.y.rows; ++b) {
      const int64_t size = 1 + static_cast<int64_t>(random() % max_bag);
      for (int64_t i = 0; i < size; ++i)
        ids.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(feature.table.num_rows)));
      offsets.push_back(static_cast<int64_t>(ids.size()));
    }
    for (const int64_t id : ids) call.row_lines += lines_of_row(feature.table, id);
    call.num_ids += static_cast<int64_t>(ids.size());
    feature.ids = ids;
    feature.bags = {offsets.data(), feature.y.rows};
    call.features.push_back(feature);
  }
  return call;
}

void embedding_bag(benchmark::State& state) {
  const int64_t merged = state.range(0), columns = num_features / 2 * 20;
  Buffer<float> user_rows(merged * columns), item_rows(merged * num_items * columns);
  const Matrix<float> user(user_rows.data(), merged, columns), item(item_rows.data(), merged * num_items, columns);
  std::mt19937_64 random(1);
  std::vector<Call> calls;
  for (int64_t r = 0; r < num_requests; r += merged) calls.push_back(make_call(random, user, item));

  uint64_t generator = 1;
  double per_line = std::numeric_limits<double>::infinity(), per_random_line = per_line, per_id = per_line;
  std::array<std::vector<double>, num_ways> fractions;
  for (auto _ : state) {
    double total = 0;
    for (const Call& call : calls) {
      const auto lines = static_cast<double>(call.row_lines), ids = static_cast<double>(call.num_ids);
      const std::array<double, num_ways> random_lines = seconds_of_random_lines(call.row_lines, generator);
      const double elapsed = seconds_of([&] { host_ops::embedding_bag(call.features); });
      for (size_t way = 0; way < num_ways; ++way) {
        per_random_line = std::min(per_random_line, random_lines[way] / lines);
        fractions[way].push_back(random_lines[way] / elapsed);
      }
      per_line = std::min(per_line, elapsed / lines);
      per_id = std::min(per_id, elapsed / ids);
      total += elapsed;
    }
    state.SetIterationTime(total);
  }
  state.counters["ns_per_id"] = per_id * 1e9;
  state.counters["ns_per_line"] = per_line * 1e9;
  state.counters["ns_per_random_line"] = per_random_line * 1e9;
  double least = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& of_way : fractions) least = std::min(least, bench::median(of_way));
  state.counters["random_line_fraction"] = least;
}
BENCHMARK(embedding_bag)
    ->Name("embedding_bag/requests")
    ->Arg(1)
    ->Arg(4)
    ->Iterations(40)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

/// The look-ups of workloads.hpp, as the benchmarks of GPUs have them: bytes of rows for each second, and what a copy
/// of as many bytes takes of it.
void workload(benchmark::State& state, const bench::BagWorkload& workload) {
  std::vector<bench::BagIds> ids;
  std::vector<Buffer<float>> outputs;
  std::vector<BagFeature> features;
  int64_t used = 0, num_ids = 0, num_bytes = 0;
  ids.reserve(workload.features.size());
  for (const bench::BagShape& shape : workload.features) {
    BagFeature feature;
    const auto take = [&](int64_t bytes) {
      const unsigned char* const part = memory().data() + used;
      used += (bytes + line - 1) / line * line;
      return part;
    };
    const int64_t row_bytes = shape.dim * size_of(workload.type);
    if (workload.scales_are_behind) {
      const unsigned char* const rows = take(shape.num_rows * scaled_row_bytes(shape.dim));
      feature.table = view_scaled_rows(rows, shape.num_rows, shape.dim);
    } else {
      feature.table = {workload.type, take(shape.num_rows * row_bytes), shape.num_rows, shape.dim, row_bytes};
    }
    if (workload.type == DType::i8 && !workload.scales_are_behind) {
      feature.table.scale = reinterpret_cast<const float*>(take(shape.num_rows * 4));
      feature.table.offset = reinterpret_cast<const float*>(take(shape.num_rows * 4));
    }
    if (used > total_bytes) return state.SkipWithError("skipped: needs tables of more than 4 GB");
    ids.push_back(bench::make_ids(shape, workload.alpha, features.size()));
    feature.pooling = Pooling::sum;
    feature.ids = ids.back().ids;
    feature.bags = {ids.back().offsets.data(), ids.back().num_bags()};
    outputs.emplace_back(shape.num_bags * shape.dim);
    feature.y = {outputs.back().data(), shape.num_bags, shape.dim};
    num_ids += feature.ids.size();
    num_bytes += feature.ids.size() * (row_bytes + (workload.type == DType::i8 ? 16 : 8)) + 4 * outputs.back().size();
    features.push_back(feature);
  }
  bench::measure(state, static_cast<double>(num_bytes), 0, [&] { host_ops::embedding_bag(features); });
  state.counters["ns_per_id"] = state.counters["min_us"] * 1e3 / static_cast<double>(num_ids);
}

const bool workloads_added = [] {
  const auto add = [](const bench::BagWorkload& of) {
    benchmark::RegisterBenchmark(("workload/" + of.name).c_str(),
                                 [of](benchmark::State& state) { workload(state, of); })
        ->Iterations(5)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  };
  for (const double alpha : bench::alphas()) {
    add(bench::nbit_device(DType::f16, alpha));
    add(bench::nbit_device(DType::i8, alpha));
    add(bench::nbit_device_behind(alpha));
  }
  add(bench::recflex_like(1.05));
  for (const auto& [requests, items] : {std::pair<int64_t, int64_t>{1, 50}, {1, 500}, {16, 100}, {64, 100}})
    add(bench::serving(requests, items, 1.05));
  return true;
}();

}  // namespace
