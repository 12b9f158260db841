// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Definitions of batch/detail/batch_state.hpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "warprank/batch/detail/batch_state.hpp"
#include "warprank/batch/detail/staging.hpp"
#include "warprank/batch/index.hpp"
#include "warprank/core/compiled.hpp"
#include "warprank/core/status.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 { namespace detail {

WARPRANK_HOST_INLINE RequestRecord& BatchState::add_open() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Staging> staging = take_staging();  // before there is a record, which would be left without one
  staging->reset(*layout_);
  RequestRecord& record = add_record();
  record.staging = std::move(staging);
  return record;
}

WARPRANK_HOST_INLINE RequestRecord& BatchState::add_finished(Status status, int64_t begin) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RequestRecord& record = add_record();
  record.finished_status = std::move(status);
  record.begin = begin;
  return record;
}

WARPRANK_HOST_INLINE int64_t BatchState::add_valid(int64_t begin, Span<const int64_t> begins) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t first = size_;
  for (int64_t r = 0; r < begins.size() - 1; ++r) add_record().begin = begin + begins[r];
  return first;
}

WARPRANK_HOST_INLINE int64_t BatchState::add_all(const BatchState& other, int64_t begin) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t first = size_;
  for (int64_t r = 0; r < other.size_; ++r) {
    const RequestRecord& from = other.record(r);
    RequestRecord& record = add_record();
    record.finished_status = from.finished_status;
    if (from.begin != RequestRecord::no_blob) record.begin = begin + from.begin;
  }
  return first;
}

WARPRANK_HOST_INLINE void BatchState::finish(RequestRecord& record) {
  if (record.staging == nullptr) return;
  if (record.staging->seal())
    record.begin = memory_.append(record.staging->bytes(), [&](std::byte* blob) { record.staging->write(blob); });
  record.finished_status = record.staging->status();
  const std::lock_guard<std::mutex> lock(mutex_);
  spare_.push_back(std::move(record.staging));
}

WARPRANK_HOST_INLINE void BatchState::close() {
  if (closed_) return;
  int64_t num_scored = 0;
  for (int64_t r = 0; r < size_; ++r) {
    finish(record(r));
    if (record(r).begin != RequestRecord::no_blob) ++num_scored;
  }
  index_ = {static_cast<int64_t>(layout_->axes().size()), std::max(expected_requests_, num_scored)};
  IndexWriter writer(index_, memory_.scratch(index_.bytes()));
  for (int64_t r = 0; r < size_; ++r) {
    const int64_t begin = record(r).begin;
    if (begin != RequestRecord::no_blob) writer.add({memory_.data() + begin, *layout_});
  }
  writer.finish();
  closed_ = true;
}

WARPRANK_HOST_INLINE void BatchState::clear() {
  for (int64_t r = 0; r < size_; ++r)
    if (record(r).staging != nullptr) spare_.push_back(std::move(record(r).staging));
  size_ = 0;
  memory_.clear();
  closed_ = false;
  ++generation_;
}

}}}  // namespace warprank::v0::detail
