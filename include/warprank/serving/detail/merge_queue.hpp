// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Requests that wait, and which of them go together. No threads and no clock: RankingService has these.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "warprank/serving/detail/batch_times.hpp"
#include "warprank/serving/service_options.hpp"

namespace warprank { inline namespace v0 { namespace detail {

/// What the queue needs to know of a request.
struct WaitingCall {
  std::vector<int64_t> rows;  ///< [axes]
  ServiceClock::time_point arrived = {}, deadline = ServiceClock::time_point::max();
  Priority priority = Priority::normal;
  bool is_tried = false;  ///< unless its deadline is over, however long batches took so far
  uint64_t call = 0;      ///< CallOptions::call
};

/// Rows of each axis; which capacities hold them.
class Capacities {
 public:
  using Rows = std::vector<int64_t>;

  Capacities(std::vector<Rows> most, size_t num_axes) : most_(std::move(most)), num_axes_(num_axes) {}

  size_t size() const { return most_.size(); }
  size_t num_axes() const { return num_axes_; }
  const Rows& most(size_t capacity) const { return most_[capacity]; }
  /// The first that holds them; size() when none does.
  size_t of(const Rows& rows) const {
    size_t c = 0;
    while (c < most_.size() && !holds(most_[c], rows)) ++c;
    return c;
  }

 private:
  static bool holds(const Rows& most, const Rows& rows) {
    for (size_t axis = 0; axis < rows.size(); ++axis)
      if (rows[axis] > most[axis]) return false;
    return true;
  }

  std::vector<Rows> most_;
  size_t num_axes_;
};

/// `Call` is a WaitingCall. Calls go from list to list by splicing, which needs no memory: a worker has nobody to tell
/// that there is none.
template <class Call>
class MergeQueue {
 public:
  using Calls = std::list<Call>;
  using TimePoint = ServiceClock::time_point;

  /// Requests above all capacities run at most at `num_workers` - 1 places at a time, so that the others go on; where
  /// there is one worker, at that.
  MergeQueue(Capacities capacities, const ServiceOptions& options, int num_workers)
      : capacities_(std::move(capacities)),
        options_(options),
        most_oversize_(std::max(num_workers - 1, 1)),
        times_(capacities_.size()),
        rows_(capacities_.num_axes()) {
    for (Line& line : lines_) line.rows.resize(capacities_.num_axes());
  }

  bool empty() const { return num_waiting_ == 0; }
  int64_t size() const { return num_waiting_; }

  /// Takes in the one call of a list.
  void push(Calls& call) {
    const Call& added = call.front();
    Line& line = lines_[line_of(added.priority, capacities_.of(added.rows) == capacities_.size())];
    add_rows(line.rows, added.rows, 1);
    line.calls.splice(line.calls.end(), call);
    ++num_waiting_;
  }

  /// Gives up the last call of normal priority; false when there is none.
  bool give_up_one(Calls& to) {
    for (const bool is_oversize : {true, false}) {
      Line& line = lines_[line_of(Priority::normal, is_oversize)];
      if (line.calls.empty()) continue;
      move(line, std::prev(line.calls.end()), to);
      return true;
    }
    return false;
  }

  /// Gives up all calls of that number, in any line.
  void give_up(uint64_t call, Calls& to) {
    for (Line& line : lines_)
      for (auto next = line.calls.begin(); next != line.calls.end();) {
        const auto one = next++;
        if (one->call == call) move(line, one, to);
      }
  }

  /// A batch that a worker runs now, or when to ask again.
  struct Taken {
    size_t capacity = 0;                 ///< that holds the batch; as many as there are: none
    TimePoint again = TimePoint::max();  ///< where nothing was taken: not before something comes or is done
  };

  /// Moves what goes together to `batch`, and what comes too late to `late`. With `at_once` nothing waits for more.
  Taken take(TimePoint now, bool at_once, Calls& batch, Calls& late) {
    for (Line& line : lines_)
      while (!line.calls.empty() && is_late(line.calls.front(), now, capacities_.of(line.calls.front().rows)))
        move(line, line.calls.begin(), late);
    for (const Priority priority : {Priority::high, Priority::normal}) {
      Line &line = lines_[line_of(priority, false)], &oversize = lines_[line_of(priority, true)];
      const bool has_oversize = !oversize.calls.empty() && num_oversize_ < most_oversize_;
      if (has_oversize && (line.calls.empty() || oversize.calls.front().arrived < line.calls.front().arrived)) {
        move(oversize, oversize.calls.begin(), batch);
        ++num_oversize_;
        return {capacities_.size()};
      }
      if (!line.calls.empty()) return merge(now, at_once, batch);
    }
    return {};
  }

  /// A batch of `capacity` has ended, after a time that tells how long the next ones take unless it failed.
  void done(size_t capacity, std::optional<ServiceClock::duration> took) {
    if (capacity == capacities_.size()) --num_oversize_;
    if (took) times_.add(capacity, *took);
  }

  /// Whether a request that comes now must miss its deadline: all batches that it waits for, in the best case.
  bool comes_too_late(TimePoint now, TimePoint deadline, Priority priority, int num_workers) const {
    if (deadline == TimePoint::max()) return false;
    if (deadline <= now) return true;
    return deadline - now < time_before(priority) / num_workers + times_.least();
  }

 private:
  struct Line {
    Calls calls;
    std::vector<int64_t> rows;  // [axes], of all
  };

  static size_t line_of(Priority priority, bool is_oversize) {
    return 2 * static_cast<size_t>(priority) + (is_oversize ? 1 : 0);
  }

  static void add_rows(std::vector<int64_t>& rows, const std::vector<int64_t>& more, int64_t sign) {
    for (size_t axis = 0; axis < more.size(); ++axis) rows[axis] += sign * more[axis];
  }

  void move(Line& line, typename Calls::iterator call, Calls& to) {
    add_rows(line.rows, call->rows, -1);
    to.splice(to.end(), line.calls, call);
    --num_waiting_;
  }

  bool is_late(const Call& call, TimePoint now, size_t capacity) const {
    if (call.deadline == TimePoint::max()) return false;
    return call.deadline <= now || (!call.is_tried && call.deadline - now < times_.expected(capacity));
  }

  /// Of the calls in line, those of high priority first, as many as go together.
  Taken merge(TimePoint now, bool at_once, Calls& batch) {
    std::fill(rows_.begin(), rows_.end(), 0);
    Taken taken;
    bool is_full = false;
    TimePoint oldest = TimePoint::max(), first_deadline = TimePoint::max();
    std::array<typename Calls::iterator, 2> ends;
    int64_t count = 0;
    for (size_t p = 0; p < ends.size(); ++p) {
      Line& line = lines_[2 * p];
      auto& end = ends[p] = line.calls.begin();
      for (; end != line.calls.end(); ++end) {
        add_rows(rows_, end->rows, 1);
        const size_t capacity = capacities_.of(rows_);
        if (count > 0 &&
            (count == options_.most_merged || !goes_together(now, capacity, taken.capacity, *end, first_deadline))) {
          add_rows(rows_, end->rows, -1);
          is_full = true;
          break;
        }
        ++count;
        taken.capacity = capacity;
        oldest = std::min(oldest, end->arrived);
        if (!end->is_tried) first_deadline = std::min(first_deadline, end->deadline);
      }
    }
    taken.again = oldest + options_.most_wait;
    if (first_deadline != TimePoint::max())  // those that wait to be merged are not late for it
      taken.again = std::min(taken.again, first_deadline - 2 * times_.expected(taken.capacity));
    if (!at_once && !is_full && count < options_.most_merged && now < taken.again) return taken;
    taken.again = TimePoint::max();
    for (size_t p = 0; p < ends.size(); ++p) {
      Line& line = lines_[2 * p];
      while (line.calls.begin() != ends[p]) move(line, line.calls.begin(), batch);
    }
    return taken;
  }

  /// Whether the batch with one more call, which has `rows_`, keeps to limits and deadlines.
  bool goes_together(TimePoint now, size_t capacity, size_t without, const Call& more, TimePoint first_deadline) const {
    if (capacity == capacities_.size()) return false;
    if (std::any_of(rows_.begin(), rows_.end(), [&](int64_t rows) { return rows > options_.most_rows; })) return false;
    const TimePoint end = now + times_.expected(capacity);
    if (capacity != without && first_deadline < end) return false;  // a larger capacity takes longer
    return more.is_tried || more.deadline >= end;
  }

  /// What the batches take at least that are needed for all that has this priority or a higher one.
  ServiceClock::duration time_before(Priority priority) const {
    int64_t count = 0;
    for (size_t p = 0; p <= static_cast<size_t>(priority); ++p)
      count += static_cast<int64_t>(lines_[2 * p].calls.size());
    if (count == 0) return ServiceClock::duration(0);
    ServiceClock::duration least = ServiceClock::duration::max();
    for (size_t c = 0; c < capacities_.size(); ++c) {
      int64_t batches = parts(count, options_.most_merged);
      for (size_t axis = 0; axis < capacities_.num_axes(); ++axis) {
        int64_t rows = 0;
        for (size_t p = 0; p <= static_cast<size_t>(priority); ++p) rows += lines_[2 * p].rows[axis];
        batches = std::max(batches, parts(rows, capacities_.most(c)[axis]));
      }
      least = std::min(least, batches * times_.expected(c));
    }
    return capacities_.size() == 0 ? ServiceClock::duration(0) : least;
  }
  static int64_t parts(int64_t count, int64_t most) { return most == 0 ? 0 : (count + most - 1) / most; }

  const Capacities capacities_;
  const ServiceOptions options_;
  const int most_oversize_;
  std::array<Line, 4> lines_;  // of high priority, the same above all capacities, of normal priority, and those above
  int64_t num_waiting_ = 0;
  int num_oversize_ = 0;  // that run
  BatchTimes times_;
  std::vector<int64_t> rows_;  // [axes], while a batch is put together
};

}}}  // namespace warprank::v0::detail
