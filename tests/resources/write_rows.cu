// SPDX-License-Identifier: Apache-2.0

/// The kernel that writes rows of direct tables, for every alignment.

#include "warprank/ops/detail/write_rows/kernel.cuh"

namespace warprank { inline namespace v0 { namespace detail::write_rows {

WARPRANK_HIDDEN void launch_all(const TableView& table, const GivenRows& given) { launch(table, given, {}); }

}}}  // namespace warprank::v0::detail::write_rows
