// SPDX-License-Identifier: Apache-2.0

// Look-ups against the size of a table, of 100 thousand to a billion rows of 64 bytes, at equal hits: as many rows are
// asked for, spread over a table that takes memory where rows are read and nowhere else.
//
//     growth/direct        65,536 rows of a direct table, in huge pages where the system has them, as tables are; up
//                          to 100 million, since all of its pages are touched
//     growth/small_pages   the same in pages of 4 KB: almost every row of a large table is on one of its own
//     growth/cached        65,536 keys, of which memory has nine of ten, as for a table in a store
//
// The smallest table runs in turns with the one that is measured:
//
//     batch_us      of 16,384 look-ups
//     hit_ratio     of these
//     x_smallest    the time of the smallest table / batch_us

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "measure.hpp"
#include "warprank/hash_table/row_cache.hpp"
#include "warprank/ops/host/embedding_bag.hpp"

namespace {

using namespace warprank;

constexpr int64_t dim = 32, row_bytes = 2 * dim, num_hot = 1 << 16, num_look_ups = 1 << 14, smallest = 100'000;

/// Evenly spread over the table.
int64_t hot_row(int64_t which, int64_t num_rows) { return which * (num_rows / num_hot) + which % (num_rows / num_hot); }

/// Memory that is there where it is touched.
class SparseRows {
 public:
  SparseRows(int64_t num_rows, bool in_huge_pages) : bytes_(static_cast<size_t>(num_rows * row_bytes)) {
    map_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map_ == MAP_FAILED) throw std::bad_alloc();
    madvise(map_, bytes_, in_huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (int64_t which = 0; which < num_hot; ++which)
      std::memset(static_cast<char*>(map_) + hot_row(which, num_rows) * row_bytes, 0x38, row_bytes);
  }
  ~SparseRows() { munmap(map_, bytes_); }
  SparseRows(const SparseRows&) = delete;
  SparseRows& operator=(const SparseRows&) = delete;
  const void* data() const { return map_; }

 private:
  size_t bytes_;
  void* map_;
};

enum class Rows { in_huge_pages, in_small_pages, cached };

/// Look-ups of hot rows, in another order for each batch of a few.
class LookUps {
 public:
  LookUps(int64_t num_rows, Rows where) {
    std::mt19937_64 random(1);
    for (std::vector<int64_t>& batch : batches_)
      for (int64_t i = 0; i < num_look_ups; ++i)
        batch.push_back(hot_row(static_cast<int64_t>(random() % num_hot), num_rows));
    feature_.table.type = DType::f16;
    feature_.table.dim = dim;
    feature_.y = {y_.data(), num_look_ups, dim};
    feature_.counters = &counters_;
    if (where == Rows::cached) {
      const StoredRows rows{DType::f16, dim};
      cache_ = std::make_unique<RowCache>(rows, int64_t{2} * num_hot * (row_bytes + 16));
      const std::vector<unsigned char> row(row_bytes, 0x38);
      for (int64_t which = 0; which < num_hot; ++which)
        if (which % 10 != 0) cache_->insert_or_assign(hot_row(which, num_rows), row.data());
      feature_.hashed = &cache_->view();
    } else {
      rows_ = std::make_unique<SparseRows>(num_rows, where == Rows::in_huge_pages);
      feature_.table.rows = rows_->data();
      feature_.table.num_rows = num_rows;
      feature_.table.row_stride_bytes = row_bytes;
    }
  }

  void run() {
    for (const std::vector<int64_t>& batch : batches_) {
      feature_.ids = batch;
      host_ops::embedding_bag({&feature_, 1});
    }
  }
  double batch_seconds() const { return time_.value() / num_batches; }
  double sample() {
    return time_.sample([this] { run(); }, 1);
  }
  double hit_ratio() const {
    return 1 - static_cast<double>(counters_.unknown + counters_.out_of_range) / static_cast<double>(counters_.ids);
  }

 private:
  static constexpr int num_batches = 16;
  std::vector<int64_t> batches_[num_batches];
  std::vector<float> y_ = std::vector<float>(num_look_ups * dim);
  std::unique_ptr<RowCache> cache_;
  std::unique_ptr<SparseRows> rows_;
  host_ops::BagFeature feature_;
  LookupCounters counters_;
  bench::Minimum time_;
};

void growth(benchmark::State& state, Rows where) {
  LookUps ours(state.range(0), where), base(smallest, where);
  for (auto _ : state) {
    base.sample();
    state.SetIterationTime(ours.sample());
  }
  state.counters["batch_us"] = 1e6 * ours.batch_seconds();
  state.counters["hit_ratio"] = ours.hit_ratio();
  state.counters["x_smallest"] = base.batch_seconds() / ours.batch_seconds();
}

template <int64_t Largest>
void sizes(benchmark::internal::Benchmark* all) {
  all->ArgName("rows")->Iterations(20)->UseManualTime()->Unit(benchmark::kMicrosecond);
  for (int64_t rows = smallest; rows <= Largest; rows *= 10) all->Arg(rows);
}
BENCHMARK_CAPTURE(growth, direct, Rows::in_huge_pages)->Apply(sizes<100'000'000>);
BENCHMARK_CAPTURE(growth, small_pages, Rows::in_small_pages)->Apply(sizes<1'000'000'000>);
BENCHMARK_CAPTURE(growth, cached, Rows::cached)->Apply(sizes<1'000'000'000>);

}  // namespace
