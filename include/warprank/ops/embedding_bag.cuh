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
/// EmbeddingBag is used as contract.hpp says, and needs descriptors and, for bags that several blocks sum, a workspace:
/// one kernel for all features that are in the same requests.
///
/// A launch reads how many bags and ids there are from device memory: capacities bound, and bags beyond the actual
/// number are not written. Descriptors of other features may be copied over: of `EmbeddingBag`s that were made from
/// features of the same capacities, forms, requests and row sizes in the same order, so that tables are swapped without
/// a new capture.
///
/// A block does one of five things: it copies dense inputs, or rows of one id for each row of y, or pools bags by sums,
/// means and divisions by roots, or does the same with all else there is: maxima, weights, padding that is not -1,
/// indices, bags of rows that are not multiples of 8 bytes; or it does any of this for a hashed table, 32 keys of a
/// warp at a time. What weights and the like need is read by launches alone that have them, and those with hashed
/// features are of a kernel with more registers. Counters are added to once by each block, however often a row is asked
/// for.
///
/// Rows of I8 are read with fewest sectors where scale and offset are behind them (scaled_rows.hpp).
///
/// Tables and outputs may have any size in bytes. A feature has fewer than 2^30 bags and as many ids in a launch, for
/// which ids alone are 8 GB, and a direct table fewer than 2^32 - 2 rows.
///
/// Accumulates in FP32, the weights of ids without a row likewise, divisors in FP64, so that weights may have any size;
/// a mean or sqrtn divides once at the end. With k elements in the bag,
/// |y - exact| <= (k + 5) u sum_i |w_i x_i| / |divisor|, u = 2^-24, where |scale q| + |offset| stands for |x| of I8
/// rows; a maximum errs by 2 u of it, and is NaN where an element is. Half outputs are rounded once more, to nearest;
/// what is finite becomes at most 65504, with its sign. A bag that is empty, of padding alone, or whose weights make a
/// divisor of 0 gives zeros. There are no atomics on floats: a bag's bits depend on the bag and on how the table lies
/// in memory (type, dim, address and stride modulo 16 bytes, and the type of y, as the lanes that share a row decide
/// how bags of more than 32 ids are divided), never on other bags, on capacities or on the device. Only a bag that is
/// longer than max_bag_ids says may be summed in another order.
///
/// Rows of mutable hash tables may be changed by other launches meanwhile; nothing else that is read may. The y of
/// features must not overlap one another or anything that is read, and is refused as far as sizes tell.

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
  /// Throws invalid_argument with all that is wrong with the features.
  explicit EmbeddingBag(Span<const BagFeature> features)
      : EmbeddingBag(features, detail::launch_policies_of(device::target())) {}
  /// Divided as said, and not as was measured (launch_policies.hpp).
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
  // These do not overlap with the launch before: they read by load_constant what that may have written.
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
