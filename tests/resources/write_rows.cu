// SPDX-License-Identifier: Apache-2.0

/// The kernel that writes rows of direct tables, for every alignment.

#include "warprank/ops/detail/row_cache/write_rows.cuh"

namespace warprank { inline namespace v0 { namespace detail {

WARPRANK_HIDDEN void launch_all(const TableView& table, const GivenRows& given) { launch_write_rows(table, given, {}); }

}}}  // namespace warprank::v0::detail
