// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Many look-ups in a hash table in host memory. Buckets, then rows, are fetched well before they are used.

#include <algorithm>
#include <cstdint>

#include "warprank/core/prefetch.hpp"
#include "warprank/core/view.hpp"
#include "warprank/hash_table/find.hpp"
#include "warprank/hash_table/view.hpp"
#include "warprank/ops/host/simd.hpp"

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/hash_table-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(find_rows);

/// rows[i] = the address of the row of keys[i] in the table, which is being fetched into the cache; null if there is
/// none. Best in batches whose rows the cache holds until they are used: some hundreds to thousands.
inline void find_rows(const HashTableView& table, Span<const int64_t> keys, const unsigned char** rows) {
  HWY_DYNAMIC_DISPATCH(find_rows)(table, keys, rows);
}

}}}  // namespace warprank::v0::host_ops
