// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Embedding look-ups of all features of all tables in one launch, and copies of dense inputs beside them. For each bag
/// of each feature
///
///     y[b] = pool over the ids i of bag b of  w_i x_i,   x_i = row of ids[i] in the feature's table, decoded
///
/// (model/types.hpp has the formulas of pooling, bag_feature.hpp says what a feature consists of and which row an id
/// has.) Each feature has its own number of bags, table, row type, pooling, form of ids and range of columns in an
/// output; direct and hashed tables may be mixed, rows and outputs be at any alignment of their elements.
///
///     EmbeddingBag bags(features);                                          // checks and plans; on the host
///     copy bags.descriptors() to the device; zero bags.workspace_bytes() of device memory once
///     bags.launch(device_descriptors, workspace, stream);                   // again and again, also captured
///
/// A launch reads how many bags and ids there are from device memory: capacities bound, and bags beyond the actual
/// number are not written. Descriptors of other features may be copied over: of `EmbeddingBag`s that were made from
/// features of the same capacities, forms and row sizes in the same order, so that tables are swapped without a new
/// capture.
///
/// Accumulates in FP32, divisors in FP64; a mean or sqrtn divides once at the end. With k elements in the bag,
/// |y - exact| <= (k + 5) u sum_i |w_i x_i| / |divisor|, u = 2^-24, where |scale q| + |offset| stands for |x| of I8
/// rows; a maximum errs by 2 u of it, and is NaN where an element is. Half outputs are rounded once more, to nearest;
/// what is finite becomes at most 65504, with its sign. A bag that is empty, of padding alone, or whose weights make a
/// divisor of 0 gives zeros. There are no atomics on floats: a bag's bits depend on the bag and on how the table lies
/// in memory (type, dim, and address and stride modulo 16 bytes, as the lanes that share a row decide how bags of more
/// than 32 ids are divided), never on other bags, on capacities or on the device. Only a bag that is longer than
/// max_bag_ids says may be summed in another order.
///
/// Rows of mutable hash tables may be changed by other launches meanwhile; nothing else that is read may. The y of
/// features must not overlap one another or anything that is read, and is refused as far as sizes tell.

#include <cstdint>
#include <string>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/bag_feature.hpp"
#include "warprank/ops/detail/embedding_bag/check.hpp"
#include "warprank/ops/detail/embedding_bag/kernel.cuh"
#include "warprank/ops/detail/embedding_bag/prepare.hpp"

namespace warprank {

/// The look-ups of a batch, prepared for the current device.
class EmbeddingBag {
 public:
  /// Throws invalid_argument with all that is wrong with the features.
  explicit EmbeddingBag(Span<const BagFeature> features);

  /// What to copy to device memory, aligned to 16 bytes, before a launch.
  Span<const unsigned char> descriptors() const {
    return {reinterpret_cast<const unsigned char*>(descriptors_.data()),
            static_cast<int64_t>(descriptors_.size() * sizeof(detail::embedding_bag::Descriptor))};
  }
  int64_t descriptor_bytes() const { return descriptors().size(); }

  /// Device memory, aligned to 256 bytes and 0 before the first launch, that launches on one stream may share. Of it,
  /// launches leave what must be 0 at 0.
  int64_t workspace_bytes() const { return workspace_bytes_; }

  /// Queues one kernel, or nothing when there are no features. Throws invalid_argument for null or misaligned memory.
  void launch(const void* device_descriptors, void* workspace, device::Stream stream) const;

 private:
  int target_;
  int64_t grid_ = 0;
  int64_t workspace_bytes_ = 0;
  std::vector<detail::embedding_bag::Descriptor> descriptors_;
  detail::embedding_bag::Partition partition_{};
};

// ---- Implementation

WARPRANK_HIDDEN inline EmbeddingBag::EmbeddingBag(Span<const BagFeature> features) : target_(device::target()) {
  namespace bags = detail::embedding_bag;
  bags::check_features(features);
  device::dispatch_target<75>(target_, [&](auto chosen) {
    constexpr bags::Policy policy = bags::policy<chosen()>;
    std::vector<bags::Descriptor> described;
    std::vector<bags::Work> work;
    for (const BagFeature& feature : features) {
      described.push_back(bags::describe(feature, policy));
      const bags::Descriptor& d = described.back();
      work.push_back(
          {static_cast<int64_t>(work.size()), bags::descriptor_bytes(d), bags::useful_blocks(d, d.max_ids, policy)});
    }
    const int64_t resident = int64_t{device::num_multiprocessors()} * policy.blocks_per_sm;
    partition_ = bags::partition_blocks(work, resident);
    grid_ = partition_.num_blocks < resident ? partition_.num_blocks : resident;
    for (const bags::Work& w : work) {
      bags::Descriptor& d = descriptors_.emplace_back(described[static_cast<size_t>(w.feature)]);
      if (!d.cuts_bags) continue;
      const int64_t windows = bags::num_windows(d.max_ids, policy.ids_per_piece);
      d.tickets_at = workspace_bytes_;
      d.partials_at = d.tickets_at + (windows * 4 + 15) / 16 * 16;
      workspace_bytes_ = d.partials_at + 2 * windows * bags::partial_bytes(d.dim);
    }
  });
}

WARPRANK_HIDDEN inline void EmbeddingBag::launch(const void* device_descriptors, void* workspace,
                                                 device::Stream stream) const {
  namespace bags = detail::embedding_bag;
  if (descriptors_.empty()) return;
  Problems problems;
  const auto check = [&](const char* what, const void* memory, int64_t alignment) {
    if (memory == nullptr) problems.add(what, "device memory", "null");
    const int64_t got = bags::alignment_of(static_cast<const char*>(memory), bags::workspace_alignment);
    if (got < alignment) {
      problems.add(what, "an address aligned to " + std::to_string(alignment), "one aligned to " + std::to_string(got));
    }
  };
  check("descriptors", device_descriptors, alignof(bags::Descriptor));
  if (workspace_bytes_ > 0) check("workspace", workspace, bags::workspace_alignment);
  problems.throw_if_any();
  device::dispatch_target<75>(target_, [&](auto chosen) {
    constexpr auto threads = static_cast<unsigned>(bags::policy<chosen()>.threads);
    device::launch({static_cast<unsigned>(grid_), threads, 0, stream}, bags::embedding_bag_kernel<chosen()>, partition_,
                   static_cast<const bags::Descriptor*>(device_descriptors), static_cast<unsigned char*>(workspace));
  });
}

}  // namespace warprank
