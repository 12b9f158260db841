// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The largest size of a batch's blobs.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "warprank/batch/format.hpp"
#include "warprank/batch/layout.hpp"

namespace warprank { inline namespace v0 {

/// The most bytes that blobs with these numbers of rows can have together; rows[0] is the number of requests.
inline int64_t most_blob_bytes(const BatchLayout& layout, const std::vector<int64_t>& rows) {
  constexpr int64_t padding = 8;  // of a section, at most
  const int64_t requests = rows[0];
  int64_t bytes = requests * detail::BlobTables(layout).end;
  for (size_t a = 0; a < rows.size(); ++a)
    if (layout.has_offsets(AxisSlot{static_cast<int>(a)}))
      bytes += 4 * rows[static_cast<size_t>(layout.axes()[a].parent)] + requests * (4 + padding);
  for (const IdsInfo& ids : layout.ids())
    bytes +=
        size_of(ids.wire) * rows[static_cast<size_t>(ids.axis)] + (ids.wire == IdsWire::i64 ? 0 : requests * padding);
  for (const DenseInfo& dense : layout.dense())
    bytes += size_of(dense.wire) * dense.width * rows[static_cast<size_t>(dense.axis)] + requests * padding;
  return bytes;
}

}}  // namespace warprank::v0
