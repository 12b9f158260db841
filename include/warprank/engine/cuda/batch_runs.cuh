// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which runs a batch takes: those of the capacities, or of its own size where it is above all of them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/core/error.hpp"
#include "warprank/engine/cuda/batch_parts.hpp"
#include "warprank/engine/cuda/run_set.cuh"
#include "warprank/engine/engine.hpp"
#include "warprank/plan/plan.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// A run for each capacity, which are captured, and those of the latest sizes of batches above all capacities.
class BatchRuns {
 public:
  /// Runs are for the current device, their memory is written in the order of the stream. All that is referred to
  /// outlives it.
  BatchRuns(const Plan& plan, const ContextOptions& options, int device_index, device::Stream stream)
      : plan_(plan), options_(options), device_index_(device_index), stream_(stream) {}

  static std::vector<RunSize> sizes_of(const Plan& plan) {
    std::vector<RunSize> sizes;
    for (const Capacity& capacity : plan.options().capacities) {
      std::vector<int64_t> rows = plan::rows_at(plan.source(), capacity);
      const int64_t blob_bytes = most_blob_bytes(plan.layout(), rows);
      sizes.push_back({std::move(rows), plan.most_requests(), blob_bytes});
    }
    return sizes;
  }
  /// Comes first.
  void make(const RunSource& from) {
    of_capacities_ = RunSet(from, sizes_of(plan_), nullptr, "a context", device_index_, stream_);
  }

  RunSet& of_capacities() { return of_capacities_; }
  const RunSet& of_capacities() const { return of_capacities_; }
  RunSet& larger() { return larger_; }
  const RunSet& larger() const { return larger_; }

  /// Intermediates are of the whole batch, so it is run at once.
  bool splits() const {
    const bool may = options_.oversize == Oversize::split || options_.oversize == Oversize::split_or_refuse;
    return may && !options_.keep_intermediates;
  }

  /// The run of a capacity that the whole batch fits, by number; -1: none.
  int measure(const Batch& batch) { return find(parts_.measure(batch)); }

  /// Makes parts() of a measured batch, and the memory for those that are above all capacities.
  void divide(const Batch& batch, int run, const RunSource& from) {
    if (run >= 0 || !splits()) {
      parts_.take_whole(batch, run);
    } else {
      parts_.divide(batch, [this](const RunSize& size) { return find(size); });
    }
    RunSize largest;
    std::vector<RunSize> needed;
    for (int64_t i = 0; i < parts_.count(); ++i) {
      if (parts_[i].run >= 0) continue;
      largest = largest.rows.empty() ? parts_[i].size : largest.joined(parts_[i].size);
      RunSize size = rounded_up(parts_[i].size);
      if (std::find(needed.begin(), needed.end(), size) == needed.end()) needed.push_back(std::move(size));
    }
    if (splits() && options_.oversize == Oversize::split_or_refuse) expect_reserved(largest);
    if (needed.empty()) return;
    make_larger(needed, from);
    parts_.run_others([this](const RunSize& size) { return -1 - find_larger(rounded_up(size)); });
  }
  const BatchParts& parts() const { return parts_; }
  /// The last batch is no more.
  void forget() { parts_.clear(); }

  /// Those above all capacities are numbered -1, -2 and so on.
  const PreparedRun& run_of(const BatchPart& part) const {
    return part.run < 0 ? *larger_.runs()[static_cast<size_t>(-1 - part.run)]
                        : *of_capacities_.runs()[static_cast<size_t>(part.run)];
  }

  const SharedMemory& memory_of(const BatchPart& part) const {
    return part.run < 0 ? larger_.shared() : of_capacities_.shared();
  }

  invalid_argument too_large(const std::string& what, const RunSize& needed) const {
    std::string capacities;
    for (const auto& run : of_capacities_.runs())
      capacities += (capacities.empty() ? "" : "; or ") + text_of(run->size());
    return {what, "at most the rows of a capacity: " + capacities, text_of(needed)};
  }
  /// "user 1, item 256, 40960 bytes"
  std::string text_of(const RunSize& size) const {
    std::string all;
    for (size_t a = 0; a < size.rows.size(); ++a)
      all += (a == 0 ? "" : ", ") + plan_.graph().axes[a].name + " " + std::to_string(size.rows[a]);
    return all + ", " + std::to_string(size.blob_bytes) + " bytes";
  }

 private:
  /// The least of the runs that the size fits, by number; -1: none.
  int find(const RunSize& needed) const {
    const auto& runs = of_capacities_.runs();
    int least = -1;
    for (int i = 0; i < static_cast<int>(runs.size()); ++i) {
      const RunSize& size = runs[static_cast<size_t>(i)]->size();
      if (size.holds(needed) && (least < 0 || runs[static_cast<size_t>(least)]->size().holds(size))) least = i;
    }
    return least;
  }
  void expect_reserved(const RunSize& largest) const {
    if (!largest.rows.empty()) throw too_large("request of a batch", largest);
    if (parts_.count() > std::max<int64_t>(1, options_.split_parts))
      throw invalid_argument("batch",
                             "at most " + std::to_string(options_.split_parts) +
                                 " parts that each fit a capacity, as ContextOptions::split_parts says",
                             std::to_string(parts_.count()));
  }

  RunSize rounded_up(const RunSize& needed) const {
    RunSize largest = of_capacities_.runs()[0]->size();
    for (const auto& run : of_capacities_.runs()) largest = largest.joined(run->size());
    return needed.rounded_up(largest, plan_.layout());
  }
  /// The run of exactly this size above all capacities, by number; -1: none. Of a larger one the bits may differ.
  int find_larger(const RunSize& size) const {
    const auto& runs = larger_.runs();
    const auto found = std::find_if(runs.begin(), runs.end(), [&](const auto& run) { return run->size() == size; });
    return found == runs.end() ? -1 : static_cast<int>(found - runs.begin());
  }
  /// For these sizes and the latest before them, which share what memory they can; where it does not suffice for all,
  /// for these.
  void make_larger(const std::vector<RunSize>& needed, const RunSource& from) {
    if (std::all_of(needed.begin(), needed.end(), [this](const RunSize& size) { return find_larger(size) >= 0; }))
      return;
    constexpr size_t most_kept = 8;
    std::vector<RunSize> all = needed;
    for (const auto& run : larger_.runs()) {
      if (all.size() >= most_kept) break;
      if (std::find(all.begin(), all.end(), run->size()) == all.end()) all.push_back(run->size());
    }
    const auto make = [&](const std::vector<RunSize>& sizes) {
      larger_ = RunSet();  // before anything is taken: there may not be room for both
      larger_ = RunSet(from, sizes, &of_capacities_, "a batch above all capacities", device_index_, stream_);
    };
    try {
      make(all);
    } catch (const out_of_device_memory&) {
      make(needed);
    }
  }

  const Plan& plan_;
  const ContextOptions& options_;
  const int device_index_;
  const device::Stream stream_;
  RunSet of_capacities_, larger_;
  BatchParts parts_;  // of the last batch
};

}}}  // namespace warprank::v0::cuda_backend
