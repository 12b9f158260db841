// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a Batch and its Requests share.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "warprank/batch/blob.hpp"
#include "warprank/batch/detail/batch_memory.hpp"
#include "warprank/batch/detail/staging.hpp"
#include "warprank/batch/index.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/core/host_allocator.hpp"
#include "warprank/core/status.hpp"

namespace warprank::detail {

/// One request of a batch: at first it has a staging, then a status and, when that is ok, a blob.
struct RequestRecord {
  static constexpr int64_t no_blob = -1;

  int64_t index = 0;
  std::unique_ptr<Staging> staging;  ///< until it is finished
  Status finished_status;            ///< from then on
  int64_t begin = no_blob;           ///< where its blob begins in the batch's memory

  const Status& status() const { return staging != nullptr ? staging->status() : finished_status; }
};

class BatchState {
 public:
  BatchState(std::shared_ptr<const BatchLayout> layout, HostAllocator allocator, int64_t expected_requests)
      : layout_(std::move(layout)), expected_requests_(expected_requests), memory_(std::move(allocator)) {}

  // Thread-safe, finish() for different records:

  RequestRecord& add_open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Staging> staging = take_staging();  // before there is a record, which would be left without one
    staging->reset(*layout_);
    RequestRecord& record = add_record();
    record.staging = std::move(staging);
    return record;
  }

  RequestRecord& add_finished(Status status, int64_t begin) {
    const std::lock_guard<std::mutex> lock(mutex_);
    RequestRecord& record = add_record();
    record.finished_status = std::move(status);
    record.begin = begin;
    return record;
  }

  /// Adds the requests of another batch, in their order and next to one another, whose blobs were appended at `begin`.
  int64_t add_all(const BatchState& other, int64_t begin) {
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

  /// Appends blobs, of requests that are added next; returns where they begin.
  template <class Write>
  int64_t append_bytes(int64_t bytes, Write&& write) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = false;  // they overwrite the index
    }
    return memory_.append(bytes, std::forward<Write>(write));
  }

  /// Packs a request; its staging serves a later one.
  void finish(RequestRecord& record) {
    if (record.staging == nullptr) return;
    if (record.staging->seal())
      record.begin = memory_.append(record.staging->bytes(), [&](std::byte* blob) { record.staging->write(blob); });
    record.finished_status = record.staging->status();
    const std::lock_guard<std::mutex> lock(mutex_);
    spare_.push_back(std::move(record.staging));
  }

  const BatchMemory& memory() const { return memory_; }
  const BatchLayout& layout() const { return *layout_; }

  // While no other thread uses the batch:

  /// Finishes every request and writes the index behind the blobs. Only reads a batch that is closed.
  void close() {
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

  void clear() {
    for (int64_t r = 0; r < size_; ++r)
      if (record(r).staging != nullptr) spare_.push_back(std::move(record(r).staging));
    size_ = 0;
    memory_.clear();
    closed_ = false;
    ++generation_;
  }

  /// Of a closed batch.
  const BatchIndex& index() const { return index_; }

  int64_t size() const { return size_; }
  bool closed() const { return closed_; }
  uint64_t generation() const { return generation_; }
  RequestRecord& record(int64_t r) { return records_[static_cast<size_t>(r)]; }
  const RequestRecord& record(int64_t r) const { return records_[static_cast<size_t>(r)]; }

 private:
  std::unique_ptr<Staging> take_staging() {
    if (spare_.empty()) return std::make_unique<Staging>();
    std::unique_ptr<Staging> staging = std::move(spare_.back());
    spare_.pop_back();
    return staging;
  }

  RequestRecord& add_record() {
    if (size_ == static_cast<int64_t>(records_.size())) records_.emplace_back();
    RequestRecord& record = records_[static_cast<size_t>(size_)];
    record.index = size_++;
    closed_ = false;
    record.finished_status = {};
    record.begin = RequestRecord::no_blob;
    return record;
  }

  const std::shared_ptr<const BatchLayout> layout_;
  const int64_t expected_requests_;
  BatchMemory memory_;
  BatchIndex index_;
  std::mutex mutex_;                             // records_, size_, closed_, spare_
  std::deque<RequestRecord> records_;            // a record stays where it is; those from size_ on are unused
  std::vector<std::unique_ptr<Staging>> spare_;  // the last one used comes next: its memory is in the cache
  int64_t size_ = 0;
  bool closed_ = false;
  uint64_t generation_ = 0;  // counts clear(), so that a Request from before it is noticed
};

}  // namespace warprank::detail
