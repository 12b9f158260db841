// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the blocks of the general part of a launch do.

#include <cstdint>
#include <vector>

#include "warprank/device/target.hpp"
#include "warprank/ops/bag_feature.hpp"
#include "warprank/ops/detail/embedding_bag/general/prepare.hpp"

namespace warprank::detail::embedding_bag::general {

/// Features without a path, prepared for the current device.
class Plan {
 public:
  Plan() = default;
  /// Its part of the workspace begins at `workspace_bytes`, which is moved on.
  WARPRANK_HIDDEN Plan(const std::vector<BagFeature>& features, int64_t& workspace_bytes) {
    if (features.empty()) return;
    target_ = device::target();
    device::dispatch_target<75>(target_, [&](auto chosen) {
      constexpr Policy policy = general::policy<chosen()>;
      std::vector<Descriptor> described;
      std::vector<Work> work;
      for (const BagFeature& feature : features) {
        described.push_back(describe(feature, policy));
        const Descriptor& d = described.back();
        work.push_back({static_cast<int64_t>(work.size()), descriptor_bytes(d), useful_blocks(d, d.max_ids, policy)});
      }
      const int64_t resident = int64_t{device::num_multiprocessors()} * policy.blocks_per_sm;
      partition_ = partition_blocks(work, resident);
      grid_ = partition_.num_blocks < resident ? partition_.num_blocks : resident;
      for (const Work& w : work) {
        Descriptor& d = descriptors_.emplace_back(described[static_cast<size_t>(w.feature)]);
        if (!d.cuts_bags) continue;
        const int64_t windows = num_windows(d.max_ids, policy.ids_per_piece);
        d.tickets_at = workspace_bytes;
        d.partials_at = d.tickets_at + (windows * 4 + 15) / 16 * 16;
        workspace_bytes = d.partials_at + 2 * windows * partial_bytes(d.dim);
      }
    });
  }

  const std::vector<Descriptor>& descriptors() const { return descriptors_; }
  int64_t num_features() const { return static_cast<int64_t>(descriptors_.size()); }

  int target() const { return target_; }
  uint32_t num_blocks() const { return static_cast<uint32_t>(grid_); }
  const Partition& partition() const { return partition_; }

 private:
  int target_ = 0;
  int64_t grid_ = 0;
  std::vector<Descriptor> descriptors_;
  Partition partition_{};
};

}  // namespace warprank::detail::embedding_bag::general
