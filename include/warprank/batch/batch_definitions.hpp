// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of batch/batch.hpp.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/batch/detail/batch_memory.hpp"
#include "warprank/batch/detail/batch_state.hpp"
#include "warprank/batch/detail/blob_conversion.hpp"
#include "warprank/batch/detail/column_blobs.hpp"
#include "warprank/batch/detail/column_rows.hpp"
#include "warprank/batch/request.hpp"
#include "warprank/batch/request_columns.hpp"
#include "warprank/batch/validate.hpp"
#include "warprank/core/compiled.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/status.hpp"
#include "warprank/core/text.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

WARPRANK_HOST_INLINE Request Batch::add_blob(Span<const std::byte> blob) {
  Status status = validate_blob(blob, layout());
  if (!status.ok()) return add_bad(std::move(status));
  detail::BlobConversion conversion(blob, layout());
  if (!conversion.is_needed()) return add_valid(blob);
  status = conversion.run();
  if (!status.ok()) return add_bad(std::move(status));
  return add_valid(conversion.bytes());
}

WARPRANK_HOST_INLINE int64_t Batch::add_requests(int64_t count, const RequestColumns& columns) {
  const detail::ColumnRows rows(layout(), count, columns);
  const detail::ColumnBlobs blobs(rows, columns);
  if (blobs.are_valid()) {
    const int64_t begin = state_->append_bytes(blobs.begins()[count], [&](std::byte* to) { blobs.write(to); });
    return state_->add_valid(begin, blobs.begins());
  }
  Batch one_by_one(state_->shared_layout());
  std::vector<detail::RowRange> ranges;
  std::vector<int64_t> lengths;
  for (int64_t r = 0; r < count; ++r) {
    Request request = one_by_one.add_request();
    rows.find(r, ranges);
    const auto part = [&](const auto& values, int axis, int64_t width) {
      const detail::RowRange range = ranges[static_cast<size_t>(axis)];
      return values.part(range.begin * width, range.size() * width);
    };
    for (const auto& [slot, values] : columns.ids) request.ids(slot, part(values, layout().ids(slot).axis, 1));
    for (const auto& [slot, values] : columns.dense) {
      const DenseInfo& info = layout().dense(slot);
      request.dense(slot, part(values, info.axis, info.width));
    }
    for (const auto& [slot, offsets] : columns.offsets) {
      if (!layout().has_offsets(slot)) continue;  // all rows are the request's
      const detail::RowRange parents = ranges[static_cast<size_t>(layout().axis(slot).parent)];
      lengths.clear();
      for (int64_t s = parents.begin; s < parents.end; ++s) lengths.push_back(offsets[s + 1] - offsets[s]);
      request.lengths(slot, lengths);
    }
    request.finish();
  }
  return append(one_by_one);
}

WARPRANK_HOST_INLINE int64_t Batch::append(Batch& other) {
  if (&other == this) throw invalid_argument("Batch::append", "another batch", "the batch itself");
  if (other.fingerprint() != fingerprint())
    throw invalid_argument("Batch::append", "a batch of the layout " + detail::hexadecimal(fingerprint()),
                           detail::hexadecimal(other.fingerprint()));
  other.close();
  const detail::BatchMemory& from = other.state_->memory();
  const int64_t begin = state_->append_bytes(from.size(), [&](std::byte* to) {
    if (from.size() > 0) std::memcpy(to, from.data(), static_cast<size_t>(from.size()));
  });
  return state_->add_all(*other.state_, begin);
}

}}  // namespace warprank::v0
