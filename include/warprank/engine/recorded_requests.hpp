// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Requests that an old and a new model score, to compare them before the new model serves.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/rest.hpp"
#include "warprank/engine/context.hpp"
#include "warprank/plan/plan.hpp"

namespace warprank { inline namespace v0 {

/// The differences between the scores of two models.
struct ScoreComparison {
  struct Output {
    std::string name;
    double largest = 0;    ///< largest |new - old|; infinity where only the new score is NaN, infinite or missing
    double mean = 0;       ///< of |new - old|
    int64_t request = -1;  ///< the recorded request with the largest difference; -1: all scores are equal
    int64_t unusable = 0;  ///< scores whose old value is NaN, infinite or missing: not in the differences
  };
  std::vector<Output> outputs;
  int64_t num_requests = 0;  ///< recorded; each is compared once for every capacity

  double largest() const {
    double most = 0;
    for (const Output& output : outputs) most = std::max(most, output.largest);
    return most;
  }
  std::string to_string() const {
    std::string text = std::to_string(num_requests) + " recorded requests";
    char numbers[80];
    for (const Output& output : outputs) {
      std::snprintf(numbers, sizeof numbers, "%.3g, mean %.3g", output.largest, output.mean);
      text += "; '" + output.name + "': largest difference " + numbers;
      if (output.request >= 0) text += ", request " + std::to_string(output.request);
      if (output.unusable > 0) text += ", " + std::to_string(output.unusable) + " old scores NaN, infinite or missing";
    }
    return text;
  }
};

namespace detail {

/// A context's scores of recorded requests.
struct RecordedScores {
  struct Entry {
    int64_t request;
    std::vector<std::vector<float>> outputs;  ///< [outputs][rows * width]
  };
  std::vector<Entry> entries;  ///< each request once for every capacity, in the same order whichever context it was
};

class RecordedRequests {
 public:
  /// Throws invalid_argument for blobs that are not requests of the plan, or above all its capacities: contexts would
  /// allocate memory for such requests.
  RecordedRequests(const Plan& plan, const std::vector<std::vector<std::byte>>& blobs) : plan_(plan) {
    Problems problems;
    for (size_t r = 0; r < blobs.size(); ++r) {
      Batch& batch = requests_.emplace_back(plan.batch());
      batch.add_blob(blobs[r]);
      batch.close();
      if (!batch.status(0).ok())
        problems.add("recorded request " + std::to_string(r), "a request of the plan", batch.status(0).message);
      else if (!fits(batch))
        problems.add("recorded request " + std::to_string(r), "at most the rows of a capacity", "more");
    }
    problems.throw_if_any();
  }

  int64_t size() const { return static_cast<int64_t>(requests_.size()); }

  /// Scores all requests for each capacity of the plan, merged as far as they fit. If there are too few to fill a
  /// capacity, some are scored again, so that a context runs at each of its sizes. `run(Batch&)` gives the Scores.
  template <class Run>
  RecordedScores score(Run&& run) {
    RecordedScores scores;
    Batch batch = plan_.batch();
    if (requests_.empty()) run(batch);
    for (const Capacity& capacity : plan_.options().capacities) {
      const std::vector<int64_t> most = plan::rows_at(plan_.source(), capacity);
      for (size_t first = 0, end = 0; first < requests_.size(); first = end) {
        rest();
        end = fill(batch, first, most);
        collect(run(batch), first, std::min(end, requests_.size()), scores);
      }
    }
    return scores;
  }

  ScoreComparison compare(const RecordedScores& before, const RecordedScores& after) const {
    ScoreComparison comparison;
    comparison.num_requests = size();
    const std::vector<OutputInfo>& outputs = plan_.graph().outputs;
    for (size_t o = 0; o < outputs.size(); ++o) {
      ScoreComparison::Output& output = comparison.outputs.emplace_back();
      output.name = outputs[o].name;
      double sum = 0;
      int64_t count = 0;
      for (size_t e = 0; e < before.entries.size(); ++e) {
        const std::vector<float>&x = before.entries[e].outputs[o], &y = after.entries[e].outputs[o];
        for (size_t i = 0; i < std::max(x.size(), y.size()); ++i) {
          if (i >= x.size() || !std::isfinite(x[i])) {
            ++output.unusable;
            continue;
          }
          const double apart = i < y.size() && std::isfinite(y[i]) ? std::abs(double{y[i]} - double{x[i]}) : infinity;
          sum += apart;
          ++count;
          if (apart > output.largest) output.largest = apart, output.request = before.entries[e].request;
        }
      }
      if (count > 0) output.mean = sum / static_cast<double>(count);
    }
    return comparison;
  }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  bool fits(const Batch& request) const {
    const std::vector<Capacity>& capacities = plan_.options().capacities;
    return std::any_of(capacities.begin(), capacities.end(), [&](const Capacity& capacity) {
      const std::vector<int64_t> most = plan::rows_at(plan_.source(), capacity);
      for (size_t axis = 0; axis < most.size(); ++axis)
        if (request.num_rows({static_cast<int>(axis)}) > most[axis]) return false;
      return true;
    });
  }

  /// Takes requests from `first` on, and after the last request begins again with the first: as many as fit, but at
  /// least one. Returns the number behind the last one taken.
  size_t fill(Batch& batch, size_t first, const std::vector<int64_t>& most) {
    batch.clear();
    std::vector<int64_t> rows(most.size(), 0);
    for (size_t r = first;; ++r) {
      Batch& request = requests_[r % requests_.size()];
      for (size_t axis = 0; axis < rows.size(); ++axis) {
        rows[axis] += request.num_rows({static_cast<int>(axis)});
        if (r > first && rows[axis] > most[axis]) return r;
      }
      batch.append(request);
    }
  }

  /// Scores of the requests [first, end), with which a batch begins.
  void collect(const Scores& scores, size_t first, size_t end, RecordedScores& to) const {
    for (size_t r = first; r < end; ++r) {
      RecordedScores::Entry& entry = to.entries.emplace_back();
      entry.request = static_cast<int64_t>(r);
      for (const OutputInfo& output : plan_.graph().outputs) {
        const Span<const float> values = scores[output.name].of(static_cast<int64_t>(r - first));
        entry.outputs.emplace_back(values.begin(), values.end());
      }
    }
  }

  const Plan plan_;
  std::vector<Batch> requests_;  // of one request each, closed
};

}  // namespace detail
}}  // namespace warprank::v0
