// SPDX-License-Identifier: Apache-2.0

/// What takes marks out of caches of rows, for scripts/kernel_report.sh. Their look-ups are among those of
/// embedding_bag, their updates among those of hash tables.

#include "warprank/ops/detail/row_cache/take_marks.cuh"

namespace warprank { inline namespace v0 { namespace detail::cached {

WARPRANK_HIDDEN void launch_all(const RowCacheView& cache, const TakenMarks& to) {
  launch_take_marks(cache, {}, to, {});
}

}}}  // namespace warprank::v0::detail::cached
