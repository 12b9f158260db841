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
#include "warprank/core/compiled.hpp"
#include "warprank/core/host_allocator.hpp"
#include "warprank/core/status.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 { namespace detail {

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

  WARPRANK_HOST_INLINE RequestRecord& add_open();

  WARPRANK_HOST_INLINE RequestRecord& add_finished(Status status, int64_t begin);

  /// Adds requests, next to one another, with blobs that were appended at `begin`, of which `begins` says where each
  /// begins, and where the last ends. Returns the number of the first.
  WARPRANK_HOST_INLINE int64_t add_valid(int64_t begin, Span<const int64_t> begins);

  /// Adds the requests of another batch, in their order and next to one another, whose blobs were appended at `begin`.
  WARPRANK_HOST_INLINE int64_t add_all(const BatchState& other, int64_t begin);

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
  WARPRANK_HOST_INLINE void finish(RequestRecord& record);

  const BatchMemory& memory() const { return memory_; }
  const BatchLayout& layout() const { return *layout_; }
  const std::shared_ptr<const BatchLayout>& shared_layout() const { return layout_; }

  // While no other thread uses the batch:

  /// Finishes every request and writes the index behind the blobs. Only reads a batch that is closed.
  WARPRANK_HOST_INLINE void close();

  WARPRANK_HOST_INLINE void clear();

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

}}}  // namespace warprank::v0::detail

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/batch/detail/batch_state_definitions.hpp"
#endif
