// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of batch/batch.hpp.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "warprank/batch/batch.hpp"
#include "warprank/batch/detail/alike_blobs.hpp"
#include "warprank/batch/detail/batch_memory.hpp"
#include "warprank/batch/detail/batch_state.hpp"
#include "warprank/batch/detail/blob_conversion.hpp"
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
  const detail::AlikeBlobs blobs(layout(), count, columns);
  if (blobs.are_valid()) {
    const int64_t begin = state_->append_bytes(count * blobs.bytes(), [&](std::byte* to) { blobs.write(to); });
    return state_->add_valid(count, begin, blobs.bytes());
  }
  Batch one_by_one(state_->shared_layout());
  for (int64_t r = 0; r < count; ++r) {
    Request request = one_by_one.add_request();
    for (const auto& [slot, values] : columns.ids) request.ids(slot, {values[r]});
    for (const auto& [slot, values] : columns.dense) {
      const int64_t width = layout().dense(slot).width;
      request.dense(slot, values.part(r * width, width));
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
