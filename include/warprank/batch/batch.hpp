// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Requests gathered to be scored together.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "warprank/batch/blob.hpp"
#include "warprank/batch/detail/batch_state.hpp"
#include "warprank/batch/index.hpp"
#include "warprank/batch/layout.hpp"
#include "warprank/batch/request.hpp"
#include "warprank/batch/request_columns.hpp"
#include "warprank/batch/validate.hpp"
#include "warprank/core/compiled.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/host_allocator.hpp"
#include "warprank/core/status.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

/// Requests of one plan, in one contiguous range of memory: their blobs side by side, in no particular order, then the
/// index (index.hpp).
///
///     Batch batch(layout);
///     Request request = batch.add_request();   // any thread
///     request.ids(...).dense(...).finish();    // the thread that fills it
///     batch.close();                           // one thread: Context::run does it
///
/// Any threads may call add_request, add_blob, append and all functions of different Requests at once; all other
/// functions need that none of these is running. A wrong request does not affect the others. Memory is kept by clear(),
/// so that a reused batch allocates nothing once it has seen its largest load.
class Batch {
 public:
  /// The index has room for `expected_requests`, or for as many as are scored when these are more.
  explicit Batch(std::shared_ptr<const BatchLayout> layout, HostAllocator allocator = {}, int64_t expected_requests = 0)
      : state_(std::make_unique<detail::BatchState>(std::move(layout), std::move(allocator), expected_requests)) {}
  explicit Batch(BatchLayout layout, HostAllocator allocator = {}, int64_t expected_requests = 0)
      : Batch(std::make_shared<const BatchLayout>(std::move(layout)), std::move(allocator), expected_requests) {}

  /// An empty request, to be filled.
  Request add_request() { return {*state_, state_->add_open()}; }

  /// A request from a blob at any address, which is validated and copied unchanged; its status tells its errors. A blob
  /// of another version, or with inputs of other types than the layout's, is converted to the blob that Request would
  /// have packed; this takes memory during the call. The bytes must not change during the call.
  WARPRANK_HOST_INLINE Request add_blob(Span<const std::byte> blob);

  /// Adds `count` requests that are given as columns, one behind the other: the blobs and statuses that as many
  /// Requests give. Where nothing is wrong, no request is staged by itself. Returns the number of the first. Throws
  /// invalid_argument, and adds nothing, for inputs and axes that are given twice, columns of other lengths, rows of a
  /// nested axis without offsets, and offsets that decrease or of which no input has rows.
  WARPRANK_HOST_INLINE int64_t add_requests(int64_t count, const RequestColumns& columns);

  /// Adds all requests of another batch behind the requests of this one, with their blobs copied unchanged. Closes the
  /// other batch and leaves it otherwise unchanged. Returns the number of its first request here. Throws
  /// invalid_argument if it is this batch or of another layout.
  WARPRANK_HOST_INLINE int64_t append(Batch& other);

  /// Packs the requests that are not finished and writes the index. Adding a request opens the batch again. The second
  /// call does nothing, so that several contexts may run a closed batch at once.
  void close() { state_->close(); }
  bool closed() const { return state_->closed(); }

  /// Forgets all requests and keeps the memory.
  void clear() { state_->clear(); }

  const BatchLayout& layout() const { return state_->layout(); }
  /// The layout's, with the types of inputs: by it an engine refuses batches of another plan.
  uint64_t fingerprint() const { return layout().batch_fingerprint(); }

  int64_t size() const { return state_->size(); }
  /// Throws invalid_argument when there is no request `r`.
  const Status& status(int64_t r) const { return record(r).status(); }
  /// Throws invalid_argument when request `r` has no blob: it is not finished, or its status is not ok. Valid until the
  /// batch changes.
  BlobView blob(int64_t r) const {
    const detail::RequestRecord& found = record(r);
    if (found.begin == detail::RequestRecord::no_blob)
      throw invalid_argument("blob of request " + std::to_string(r), "a finished request",
                             found.status().ok() ? "an unfinished one" : found.status().message);
    return {state_->memory().data() + found.begin, layout()};
  }

  // Of a closed batch; throw invalid_argument when it is open. Valid until the batch changes.

  /// All blobs, then the index: the bytes that an engine copies at once.
  Span<const std::byte> bytes() const { return {state_->memory().data(), blob_bytes() + index().bytes()}; }
  /// All blobs: the first of these bytes.
  Span<const std::byte> blobs() const { return {bytes().data(), blob_bytes()}; }
  /// The places of the parts of the index.
  const BatchIndex& index() const {
    if (!closed()) throw invalid_argument("index of a batch", "a closed batch", "an open one");
    return state_->index();
  }
  /// The number of scored requests: those whose status is ok.
  int64_t num_scored() const { return num_rows({0}); }
  /// Rows of an axis in all scored requests together.
  int64_t num_rows(AxisSlot axis) const { return *index_values(index().count_at(axis)); }
  /// [num_scored()]: where the blob of each begins, in bytes from the beginning of the index: negative, since blobs lie
  /// before it.
  Span<const int64_t> positions() const { return {index_values(index().positions_at()), num_scored()}; }
  /// [num_scored() + 1]: rows of the axis before each of them, and all rows.
  Span<const int64_t> row_starts(AxisSlot axis) const {
    return {index_values(index().row_starts_at(axis)), num_scored() + 1};
  }

 private:
  friend class DividedRequests;  // makes blobs of others

  /// A request whose blob, of the layout's types, `write(std::byte*)` fills.
  template <class Write>
  Request add_valid(int64_t bytes, Write&& write) {
    const int64_t begin = state_->append_bytes(bytes, std::forward<Write>(write));
    return {*state_, state_->add_finished({}, begin)};
  }
  Request add_valid(Span<const std::byte> blob) {
    return add_valid(blob.size(),
                     [&](std::byte* to) { std::memcpy(to, blob.data(), static_cast<size_t>(blob.size())); });
  }
  Request add_bad(Status status) {
    return {*state_, state_->add_finished(std::move(status), detail::RequestRecord::no_blob)};
  }
  const detail::RequestRecord& record(int64_t r) const {
    if (r < 0 || r >= size())
      throw invalid_argument("request of a batch", "a number below " + std::to_string(size()), std::to_string(r));
    return state_->record(r);
  }
  int64_t blob_bytes() const { return state_->memory().size(); }
  const int64_t* index_values(int64_t position) const {
    return reinterpret_cast<const int64_t*>(state_->memory().data() + blob_bytes() + position);
  }

  std::unique_ptr<detail::BatchState> state_;
};

}}  // namespace warprank::v0

#if !defined(WARPRANK_HOST_COMPILED)
#include "warprank/batch/batch_definitions.hpp"
#endif
