// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Embedding look-ups on the host: for each bag of each feature, the pooled rows of its ids (model/types.hpp has the
/// formulas, bag_feature.hpp describes the row of an id).
///
///     y[b] = pool over the ids i of bag b of  w_i x_i,   x_i = row of ids[i] in the feature's table, decoded
///
/// Accumulates in FP32 in the order of the ids, divisors in double; a mean or sqrtn divides once at the end. With k
/// elements in the bag, |y - exact| <= (k + 5) u sum_i |w_i x_i| / |divisor|, u = 2^-24, where |scale q| + |offset|
/// stands for |x| of I8 rows; a maximum errs by 2 u of itself, and is NaN if an element is NaN. A bag gives zeros if it
/// is empty, has only padding, or has weights that give a divisor of 0. A bag's bits depend only on the bag.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/core/view.hpp"
#include "warprank/model/types.hpp"
#include "warprank/ops/host/bag_feature.hpp"
#include "warprank/ops/host/row_stream.hpp"
#include "warprank/ops/host/simd.hpp"
#include "warprank/ops/table_view.hpp"

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/embedding_bag-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(embedding_bag);

/// Looks up and pools all features of a batch; the rows of the next feature are fetched while one is pooled.
/// The y of the features must not overlap one another or anything that is read. Needs no workspace.
inline void embedding_bag(Span<const BagFeature> features) {
  for ([[maybe_unused]] const BagFeature& feature : features) {
    assert(feature.table.dim >= 1 && feature.y.cols == feature.table.dim && feature.y.rows == feature.num_bags());
    assert(feature.bags.offsets == nullptr || feature.bags.rows() == feature.ids.size());
    assert(feature.weights == nullptr || (feature.pooling != Pooling::max && feature.pooling != Pooling::none));
    assert(feature.table.type != DType::i64);
    assert(feature.bags.offsets == nullptr || feature.bags.offsets[0] == 0);
    assert(feature.pooling != Pooling::none || feature.bags.offsets == nullptr);
    assert(feature.hashed != nullptr || feature.table.num_rows == 0 || feature.table.rows != nullptr);
    assert(feature.hashed != nullptr || feature.table.type != DType::i8 || feature.table.num_rows == 0 ||
           (feature.table.scale != nullptr && feature.table.offset != nullptr));
    assert(feature.hashed == nullptr ||
           (feature.hashed->type == feature.table.type && feature.hashed->dim == feature.table.dim));
  }
  HWY_DYNAMIC_DISPATCH(embedding_bag)(features);
}

}}}  // namespace warprank::v0::host_ops
