// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A batch as parts that each fit a capacity, and their indices. Plain C++, no device.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/core/view.hpp"
#include "warprank/engine/cuda/run_size.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Scored requests whose blobs lie side by side.
struct BatchPart {
  int64_t first = 0, count = 0;            ///< of BatchParts::order()
  int64_t blobs_begin = 0, blobs_end = 0;  ///< bytes of the batch
  RunSize size;                            ///< what it needs
  int run = -1;                            ///< the run it fits, by number; -1: none
};

/// Keeps its memory from one batch to the next.
class BatchParts {
 public:
  /// What the whole batch needs. Comes first.
  const RunSize& measure(const Batch& batch) {
    whole_.rows.clear();
    for (int axis = 0; axis < static_cast<int>(batch.layout().axes().size()); ++axis)
      whole_.rows.push_back(batch.num_rows({axis}));
    whole_.max_requests = batch.num_scored();
    whole_.blob_bytes = blob_bytes(batch);
    return whole_;
  }
  const RunSize& whole() const { return whole_; }

  /// One part, with the requests as they are numbered.
  void take_whole(const Batch& batch, int run) {
    begin(batch);
    is_whole_ = true;
    BatchPart& part = next(0);
    part.count = batch.num_scored();
    part.blobs_end = blob_bytes(batch);
    part.size = whole_;
    part.run = run;
  }

  /// As few parts as the order of the blobs allows: each takes requests, in the order in which their blobs lie, as long
  /// as `find(RunSize)` has the number of a run for them, and not -1. A request that has none is a part by itself.
  template <class Find>
  void divide(const Batch& batch, Find find) {
    begin(batch);
    const Span<const int64_t> positions = batch.positions();
    const auto lies_before = [&](int64_t a, int64_t b) { return positions[a] < positions[b]; };
    if (!std::is_sorted(order_.begin(), order_.end(), lies_before))
      std::sort(order_.begin(), order_.end(), lies_before);
    BatchPart* part = nullptr;
    for (int64_t i = 0; i < batch.num_scored(); ++i) {
      const bool is_last = i + 1 == batch.num_scored();
      const int64_t blobs_end = is_last ? blob_bytes(batch) : blob_at(batch, order_[static_cast<size_t>(i) + 1]);
      int run = -1;
      if (part != nullptr && part->run >= 0) {
        joined_ = part->size;
        add(batch, order_[static_cast<size_t>(i)], joined_);
        joined_.blob_bytes = blobs_end - part->blobs_begin;
        run = find(joined_);
      }
      if (run < 0) {
        part = &next(i);
        part->blobs_begin = blob_at(batch, order_[static_cast<size_t>(i)]);
        joined_.rows.assign(whole_.rows.size(), 0);
        joined_.max_requests = 0;
        add(batch, order_[static_cast<size_t>(i)], joined_);
        joined_.blob_bytes = blobs_end - part->blobs_begin;
        run = find(joined_);
      }
      ++part->count;
      part->blobs_end = blobs_end;
      part->size = joined_;
      part->run = run;
    }
  }

  /// Asks `number(RunSize)` for the run of each part that has none.
  template <class Number>
  void run_others(Number number) {
    for (int64_t i = 0; i < count_; ++i)
      if (BatchPart& part = parts_[static_cast<size_t>(i)]; part.run == -1) part.run = number(part.size);
  }

  /// Forgets the batch.
  void clear() { count_ = 0; }

  int64_t count() const { return count_; }
  /// Whether there is one part that take_whole made.
  bool is_whole() const { return is_whole_; }
  const BatchPart& operator[](int64_t i) const { return parts_[static_cast<size_t>(i)]; }
  /// The scored requests, by part.
  Span<const int64_t> order() const { return order_; }

  /// The index of a part, as a run reads it once the part's blobs are copied to before it.
  void write_index(const Batch& batch, const BatchPart& part, const BatchIndex& index, std::byte* to) const {
    const auto values = [&](int64_t position) { return reinterpret_cast<int64_t*>(to + position); };
    std::copy(part.size.rows.begin(), part.size.rows.end(), values(0));
    int64_t* const positions = values(index.positions_at());
    for (int64_t i = 0; i < part.count; ++i) positions[i] = blob_at(batch, order()[part.first + i]) - part.blobs_end;
    std::fill(positions + part.count, positions + index.max_requests(), int64_t{0});
    for (int axis = 0; axis < static_cast<int>(index.num_axes()); ++axis) {
      const Span<const int64_t> starts = batch.row_starts({axis});
      int64_t* const to_starts = values(index.row_starts_at({axis}));
      int64_t rows = 0;
      for (int64_t i = 0; i < part.count; ++i) {
        const int64_t r = order()[part.first + i];
        to_starts[i] = rows;
        rows += starts[r + 1] - starts[r];
      }
      std::fill(to_starts + part.count, to_starts + index.max_requests() + 1, rows);
    }
  }

 private:
  static int64_t blob_bytes(const Batch& batch) { return batch.blobs().size(); }
  /// Where the blob of a scored request begins, from the beginning of the batch.
  static int64_t blob_at(const Batch& batch, int64_t r) { return blob_bytes(batch) + batch.positions()[r]; }

  static void add(const Batch& batch, int64_t r, RunSize& to) {
    for (int axis = 0; axis < static_cast<int>(to.rows.size()); ++axis) {
      const Span<const int64_t> starts = batch.row_starts({axis});
      to.rows[static_cast<size_t>(axis)] += starts[r + 1] - starts[r];
    }
    ++to.max_requests;
  }

  void begin(const Batch& batch) {
    count_ = 0;
    is_whole_ = false;
    order_.resize(static_cast<size_t>(batch.num_scored()));
    std::iota(order_.begin(), order_.end(), int64_t{0});
  }
  BatchPart& next(int64_t first) {
    if (count_ == static_cast<int64_t>(parts_.size())) parts_.emplace_back();
    BatchPart& part = parts_[static_cast<size_t>(count_++)];
    part.first = first;
    part.count = 0;
    part.blobs_begin = part.blobs_end = 0;
    return part;
  }

  std::vector<int64_t> order_;
  std::vector<BatchPart> parts_;  // those from count_ on are unused
  int64_t count_ = 0;
  bool is_whole_ = false;
  RunSize whole_, joined_;
};

}}}  // namespace warprank::v0::cuda_backend
