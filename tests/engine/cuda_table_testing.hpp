// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What looks tables of a CudaTableStore up, as contexts do.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/table_update_testing.hpp"
#include "support/kernel_testing.hpp"
#include "warprank/engine/cuda/table_store.cuh"
#include "warprank/ops/embedding_bag.cuh"

namespace warprank::cuda_table_testing {

using namespace kernel_testing;  // NOLINT: this is part of tests
using cuda_backend::CudaTable;
using cuda_backend::CudaTableStore;
using table_update_testing::Row;
using table_update_testing::VersionedTable;

/// Blocks of several launches run by turns, which the seed chooses.
inline Config in_turns(int seed) {
  Config config;
  config.seed = static_cast<uint64_t>(seed);
  config.preemption = 2;
  config.resident_blocks = 6;
  return config;
}

/// All tables lie there; those with caches have room for so many buckets, of the longest rows.
inline LoadOptions placed(Placement where, LoadOptions options = {}, int64_t buckets = 4) {
  constexpr int64_t most = hash_table::shape_of(hash_table::max_row_bytes, true).bucket_bytes;
  options.placement = {{"*", {where, where == Placement::cached ? buckets * most : 0}}};
  return options;
}
/// Each table has a cache of so many buckets.
inline LoadOptions cached(const std::vector<VersionedTable>& tables, int64_t buckets, LoadOptions options = {}) {
  for (const VersionedTable& table : tables)
    options.placement.push_back(
        {table.name, {Placement::cached, buckets * cache_shape(table.type, table.dim).bucket_bytes}});
  return options;
}

/// Looks keys up in all tables, by one launch: each by itself, or in bags of so many, of which there are sums.
class LookUps {
 public:
  LookUps(const CudaTableStore& store, const std::vector<VersionedTable>& tables, const std::vector<int64_t>& keys,
          int64_t bag = 1)
      : num_bags_((static_cast<int64_t>(keys.size()) + bag - 1) / bag), keys_(keys) {
    std::vector<int64_t> offsets;
    for (int64_t b = 0; b <= num_bags_; ++b) offsets.push_back(std::min(b * bag, keys_.size()));
    offsets_ = std::make_unique<DeviceArray<int64_t>>(offsets);
    std::vector<BagFeature> features;
    for (const VersionedTable& table : tables) {
      const CudaTable& found = *store.find(table.name);
      rows_.push_back(std::make_unique<DeviceArray<float>>(num_bags_ * table.dim));
      BagFeature feature;
      feature.table = found.view;
      feature.hashed = found.hashed;
      if (found.cache) feature.cache = found.cache->on_device();
      if (found.tier) feature.absent = &feature.cache->absent;
      IdArray ids;
      ids.ids = keys_.data();
      ids.num_ids.capacity = keys_.size();
      if (bag > 1) ids.offsets = offsets_->data(), feature.pooling = Pooling::sum;
      feature.ids = ids;
      feature.num_bags.capacity = num_bags_;
      feature.y = Matrix<float>(rows_.back()->data(), num_bags_, table.dim);
      features.push_back(feature);
    }
    op_ = std::make_unique<EmbeddingBag>(features);
    descriptors_ = std::make_unique<DeviceArray<unsigned char>>(op_->descriptor_bytes());
    descriptors_->write(op_->descriptors());
    workspace_ = std::make_unique<DeviceArray<unsigned char>>(op_->workspace_bytes(), 0);
  }

  void launch(Stream stream = {}) const { op_->launch({descriptors_->data(), workspace_->data()}, stream); }
  /// Returns when it is done.
  void run() const {
    launch();
    device::synchronize(nullptr);
  }
  /// All rows of a table, after everything queued.
  std::vector<Row> rows(size_t table) const {
    const std::vector<float> all = rows_[table]->read();
    const auto count = static_cast<size_t>(num_bags_), dim = all.size() / count;
    std::vector<Row> rows;
    for (size_t i = 0; i < count; ++i) rows.emplace_back(all.begin() + i * dim, all.begin() + (i + 1) * dim);
    return rows;
  }

 private:
  int64_t num_bags_;
  DeviceArray<int64_t> keys_;
  std::unique_ptr<DeviceArray<int64_t>> offsets_;
  std::vector<std::unique_ptr<DeviceArray<float>>> rows_;
  std::unique_ptr<EmbeddingBag> op_;
  std::unique_ptr<DeviceArray<unsigned char>> descriptors_, workspace_;
};

/// Launches look-ups as a context does.
struct Reader {
  explicit Reader(const std::shared_ptr<const CudaTableStore>& store) : reader(store, done) {}

  void launch(const LookUps& look_ups) {
    const auto reading = reader.read(stream.get());
    look_ups.launch(stream.get());
    done.record(stream.get());
  }

  device::OwnedStream stream;
  device::Event done;
  cuda_backend::CudaTableReader reader;
};

}  // namespace warprank::cuda_table_testing
