// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Embedding look-ups of all features of all tables in one launch, and copies of dense inputs beside them. For each bag
/// of each feature
///
///     y[b] = pool over the ids i of bag b of  w_i x_i,   x_i = row of ids[i] in the feature's table, decoded
///
/// (model/types.hpp has the formulas of pooling; bag_feature.hpp describes a feature, and the row of an id.) Each
/// feature has its own number of bags, table, row type, pooling, form of ids and range of columns in an output. Direct
/// and hashed tables may be mixed. Rows and outputs need no alignment beyond their elements'.
///
/// EmbeddingBag is used as contract.hpp says, and needs descriptors and, for bags that several blocks sum, a workspace:
/// one kernel for all features of the same requests.
///
/// A launch reads the numbers of bags and ids from device memory, up to the capacities; bags beyond the actual number
/// are not written. To swap tables without a new capture, copy the descriptors of another EmbeddingBag over the old
/// ones. Its features have the same capacities, forms, requests and row sizes, in the same order.
///
/// A block does one of five things. It copies dense inputs; or it copies the row of one id for each row of y; or it
/// pools bags by sum, mean or sqrtn; or it pools bags with everything else: maxima, weights, padding that is not -1,
/// indices, rows that are not multiples of 8 bytes; or it does any of this for a hashed table, with 32 keys of a warp
/// at a time. Only launches that have weights and the like read the additional data, and launches with hashed features
/// use a kernel with more registers. Each block adds to the counters once, however often a row is looked up.
///
/// I8 rows are read with fewest sectors if scale and offset are behind them (scaled_rows.hpp).
///
/// Tables and outputs may have any size in bytes. A feature has fewer than 2^30 bags and fewer than 2^30 ids in a
/// launch (8 GB of ids), and a direct table has fewer than 2^32 - 2 rows.
///
/// Accumulates in FP32, also the weights of ids without a row, and divisors in FP64, so that weights may have any size.
/// A mean or sqrtn divides once at the end. With k elements in the bag,
/// |y - exact| <= (k + 5) u sum_i |w_i x_i| / |divisor|, u = 2^-24, where |scale q| + |offset| stands for |x| of I8
/// rows; a maximum errs by 2 u of itself, and is NaN if an element is NaN. FP16 outputs are rounded once more, to
/// nearest; finite values become at most 65504, with their sign. A bag gives zeros if it is empty, has only padding, or
/// has weights that give a divisor of 0. There are no atomics on floats. A bag's bits depend on the bag, on the table's
/// place in memory (type, dim, address and stride modulo 16 bytes) and on the type of y: these determine the lanes that
/// share a row, and so how bags of more than 32 ids are divided. They never depend on other bags, on capacities or on
/// the device. Only a bag of more than max_bag_ids ids may be summed in another order.
///
/// Other launches may change rows of mutable hash tables meanwhile, but nothing else that is read. The y of features
/// must not overlap one another or anything that is read; overlaps are refused as far as sizes tell.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/bag_feature.hpp"
#include "warprank/ops/contract.hpp"
#include "warprank/ops/detail/common/card_policies.hpp"
#include "warprank/ops/detail/embedding_bag/check.hpp"
#include "warprank/ops/detail/embedding_bag/kernel.cuh"
#include "warprank/ops/detail/embedding_bag/plan.hpp"

namespace warprank { inline namespace v0 {

/// The look-ups of a batch, prepared for the current device.
class EmbeddingBag : public Primitive {
 public:
  /// Throws invalid_argument with all errors of the features.
  explicit EmbeddingBag(Span<const BagFeature> features)
      : EmbeddingBag(features, detail::launch_policies_of(device::target())) {}
  /// With these policies, in place of the measured ones (launch_policies.hpp).
  EmbeddingBag(Span<const BagFeature> features, const LaunchPolicies& policies)
      : Primitive("look-ups"), plan_(planned(features, policies)) {
    set_launches(static_cast<int64_t>(plan_.launches.size()));
    set_descriptors(detail::bytes_of(plan_.records));
    set_workspace_bytes(plan_.workspace_bytes);
  }

  WARPRANK_HIDDEN void launch(const LaunchMemory& memory, device::Stream stream = {}) const;

 private:
  static detail::embedding_bag::RecordPlan planned(Span<const BagFeature> features, const LaunchPolicies& policies);
  detail::embedding_bag::RecordPlan plan_;
};

// ---- Implementation

WARPRANK_HIDDEN inline detail::embedding_bag::RecordPlan EmbeddingBag::planned(Span<const BagFeature> features,
                                                                               const LaunchPolicies& policies) {
  namespace bags = detail::embedding_bag;
  bags::check_features(features);
  const int64_t resident = int64_t{device::num_multiprocessors()} * bags::policy.blocks_per_sm;
  return bags::plan_records(features, resident, policies);
}

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_EMBEDDING_BAG)
WARPRANK_KERNELS_INLINE void EmbeddingBag::launch(const LaunchMemory& memory, device::Stream stream) const {
  namespace bags = detail::embedding_bag;
  check(memory);
  const auto* const records = static_cast<const bags::Record*>(memory.descriptors);
  auto* const workspace = static_cast<unsigned char*>(memory.workspace);
  // These do not overlap with the launch before: they read by load_constant data that it may have written.
  for (const bags::RecordLaunch& one : plan_.launches) {
    const auto grid = static_cast<unsigned>(one.num_records);
    const device::LaunchConfig config{grid, static_cast<unsigned>(bags::policy.threads), 0, stream};
    const auto kernel = one.has_caches ? bags::cached_embedding_bag_kernel<>
                        : one.has_keys ? bags::embedding_bag_kernel<true>
                                       : bags::embedding_bag_kernel<false>;
    device::launch(config, kernel, records + one.first_line, one.lines, one.batch, workspace);
  }
}
#endif

}}  // namespace warprank::v0
