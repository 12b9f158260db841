// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A table, wherever its rows lie, and look-ups in it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "measure_cuda.cuh"
#include "support/zipf.hpp"
#include "warprank/core/pages.hpp"
#include "warprank/engine/cuda/table_store.cuh"
#include "warprank/model.hpp"
#include "warprank/ops/embedding_bag.cuh"
#include "warprank/store/table_in_store.hpp"

namespace warprank::bench {

using cuda_backend::CudaTable;
using cuda_backend::CudaTableStore;

/// A direct table "t" of FP16: zeros, which take no memory until they are written.
class Rows {
 public:
  const int64_t num_rows, dim;

  Rows(int64_t num_rows, int64_t dim)
      : num_rows(num_rows), dim(dim), memory_(std::make_shared<Pages>(Pages::zeroed(num_rows * dim * 2))) {}

  void write(int64_t row) {
    for (int64_t i = row * dim; i < (row + 1) * dim; ++i)
      bits()[i] = static_cast<uint16_t>(0x3800 | (i * 40503 >> 5 & 0x3ff));
  }
  uint16_t* bits() const { return reinterpret_cast<uint16_t*>(memory_->data()); }
  int64_t bytes() const { return memory_->size(); }

  std::shared_ptr<CudaTableStore> load(const TablePlacement& placement, std::vector<int> devices = {}) const {
    const TensorView view{
        "F16", DType::f16, {num_rows, dim}, reinterpret_cast<const std::byte*>(memory_->data()), bytes()};
    LoadOptions options;
    options.placement = {{"t", placement}};
    options.devices = std::move(devices);
    return CudaTableStore::load(plan(), Weights::from_views({{"t", view}}, memory_), HashTableFiles{}, 0, options);
  }
  /// In a store, with so many bytes of the host's memory and of the device's for those that are asked for.
  std::shared_ptr<CudaTableStore> load(std::shared_ptr<ParameterStore> store, int64_t host_bytes,
                                       int64_t device_bytes) const {
    TableInStore in_store;
    in_store.store = std::move(store);
    in_store.memory_bytes = host_bytes;
    LoadOptions options;
    options.stores = {{"t", in_store}};
    options.placement = {{"t", {Placement::cached, device_bytes}}};
    return CudaTableStore::load(plan(), Weights::from_tensors({}), HashTableFiles{}, 0, options);
  }

 private:
  Plan plan() const {
    return compile([this](Builder& b) -> Outputs {
      return {{"y", b.embed(b.ids("id", b.axis("user")), b.table("t", {dim, num_rows}))}};
    });
  }

  std::shared_ptr<Pages> memory_;
};

/// A row for each id, which may be written anew.
class LookUps {
 public:
  LookUps(Memory& memory, const CudaTableStore& store, const Rows& rows, int64_t count)
      : memory_(memory),
        rows_(rows),
        ids_(memory.allocate<int64_t>(count)),
        y_(memory.allocate<float16>(count * rows.dim)) {
    const CudaTable& table = *store.find("t");
    BagFeature feature;
    feature.table = table.view;
    feature.hashed = table.hashed;
    if (table.cache) feature.cache = table.cache->on_device();
    if (table.tier) feature.absent = &feature.cache->absent;
    IdArray array;
    array.ids = ids_;
    feature.ids = array;
    feature.num_bags.capacity = count;
    feature.y = Matrix<float16>{y_, count, rows.dim};
    queue_ = queue_launch(memory, EmbeddingBag(Span<const BagFeature>(&feature, 1)));
  }

  void set_ids(const std::vector<int64_t>& ids) {
    wanted_ = ids;
    device::copy_to_device(ids_, wanted_.data(), static_cast<int64_t>(8 * wanted_.size()), memory_.stream());
    device::synchronize(memory_.stream());
  }
  void run_once() const {
    queue_(memory_.stream());
    device::synchronize(memory_.stream());
  }
  Call call() const {
    return {queue_, [this] { check(); }};
  }
  /// Throws WrongResult.
  void check() const {
    const auto count = static_cast<int64_t>(wanted_.size());
    const std::vector<float16> got = memory_.read(y_, count * rows_.dim);
    for (int64_t i = 0; i < count; i += 7)
      for (int64_t c = 0; c < rows_.dim; ++c)
        if (got[static_cast<size_t>(i * rows_.dim + c)].bits !=
            rows_.bits()[wanted_[static_cast<size_t>(i)] * rows_.dim + c])
          throw WrongResult("look-ups: row of id " + std::to_string(i));
  }

 private:
  Memory& memory_;
  const Rows& rows_;
  int64_t* ids_;
  float16* y_;
  std::vector<int64_t> wanted_;
  Queue queue_;
};

/// What became of look-ups since `before`, of which there were `count`.
inline CacheCounters counted_since(const CacheCounters& before, CudaTableStore& store, int64_t count) {
  store.pass_over_caches();
  CacheCounters counters = store.cache_counters().at("t");
  counters.hits -= before.hits, counters.misses -= before.misses;
  if (counters.hits + counters.misses != count) throw WrongResult("counters of the cache");
  return counters;
}

/// So many ids of a Zipf distribution.
template <class Random>
std::vector<int64_t> draw_ids(const test_support::Zipf& zipf, int64_t count, Random& random) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  for (int64_t& id : ids) id = zipf(random);
  return ids;
}

/// Measures look-ups of the same ids in a table with a cache against others with all rows on the device and on the
/// host.
inline void measure_cached(Run& run, CudaTableStore& store, const std::vector<int64_t>& ids, int64_t row_bytes,
                           const LookUps& ours, const LookUps& in_device, const LookUps& in_host) {
  const auto count = static_cast<int64_t>(ids.size());
  const CacheCounters before = store.cache_counters().at("t");
  ours.run_once();
  const CacheCounters counters = counted_since(before, store, count);
  run.count("hit_ratio", static_cast<double>(counters.hits) / static_cast<double>(count));
  run.count("bus_bytes", static_cast<double>(counters.misses * row_bytes));

  const std::unordered_set<int64_t> unique(ids.begin(), ids.end());
  const auto bytes = [&](double looked_up) {
    return looked_up * static_cast<double>(row_bytes) + static_cast<double>(count * (8 + row_bytes));
  };
  Work work{bytes(static_cast<double>(unique.size()))};
  work.requested_bytes = bytes(static_cast<double>(count));
  run.measure(work, ours.call(), {{"device", in_device.call()}, {"host", in_host.call()}});
}

}  // namespace warprank::bench
