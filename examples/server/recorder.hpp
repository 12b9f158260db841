// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Some of the requests that came, for the next model to be tried with before it takes over.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "warprank/model.hpp"

namespace kserve {

class Recorder {
 public:
  /// Keeps every `every`-th request, of these the last `most`; none where `every` is 0.
  Recorder(const warprank::Plan& plan, int64_t every, size_t most)
      : plan_(plan),
        layout_(std::make_shared<const warprank::BatchLayout>(plan.layout())),
        every_(every),
        most_(most) {}

  /// `pack(Batch&)` adds the request to a batch. Of those that are wrong, or above all capacities, none is kept.
  template <class Pack>
  void offer(const Pack& pack) {
    if (every_ == 0 || count_.fetch_add(1, std::memory_order_relaxed) % every_ != 0) return;
    warprank::Batch batch(layout_);
    pack(batch);
    batch.close();
    if (!batch.status(0).ok() || !fits(batch)) return;
    const warprank::BlobView blob = batch.blob(0);
    std::vector<std::byte> bytes(blob.data(), blob.data() + blob.bytes());
    const std::lock_guard<std::mutex> lock(mutex_);
    if (blobs_.size() < most_)
      blobs_.push_back(std::move(bytes));
    else
      blobs_[next_].swap(bytes);
    next_ = (next_ + 1) % most_;
  }

  std::vector<std::vector<std::byte>> blobs() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return blobs_;
  }

 private:
  bool fits(const warprank::Batch& batch) const {
    const auto& capacities = plan_.options().capacities;
    return std::any_of(capacities.begin(), capacities.end(), [&](const warprank::Capacity& capacity) {
      const std::vector<int64_t> most = warprank::plan::rows_at(plan_.source(), capacity);
      for (size_t axis = 0; axis < most.size(); ++axis)
        if (batch.num_rows({static_cast<int>(axis)}) > most[axis]) return false;
      return true;
    });
  }

  const warprank::Plan plan_;
  const std::shared_ptr<const warprank::BatchLayout> layout_;
  const int64_t every_;
  const size_t most_;
  std::atomic<int64_t> count_{0};
  mutable std::mutex mutex_;  // what follows
  std::vector<std::vector<std::byte>> blobs_;
  size_t next_ = 0;
};

}  // namespace kserve
