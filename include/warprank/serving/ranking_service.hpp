// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A model behind the request threads of a server (brpc, gRPC, any other). docs/SERVING.md says how to choose its
/// options.
///
///     ServedModel served(model, tables, {.contexts = 4});
///     RankingService service(served);
///     std::future<Reply> reply = service.score([&](Request request) { request.ids(film_id, films); });   // any thread
///     served.swap(next, SwapMode::full);                                            // meanwhile, one more thread
///
/// Each request thread packs its own request into a batch of one. A worker thread, one for each context, takes the
/// waiting requests, as many as fit into one of the plan's capacities, and runs them as one batch. So requests merge if
/// they came while all workers were busy, and, with ServiceOptions::most_wait, if a worker waits for more.
///
/// Merging copies blobs, some KB for each request, instead of letting request threads fill one open batch. That would
/// save the copy, but the whole batch would wait for a thread that was interrupted while it filled its part.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "warprank/batch/batch.hpp"
#include "warprank/core/error.hpp"
#include "warprank/engine/served_model.hpp"
#include "warprank/serving/detail/merge_queue.hpp"
#include "warprank/serving/reply.hpp"
#include "warprank/serving/service_options.hpp"

namespace warprank { inline namespace v0 {

class RankingService {
 public:
  /// `served` outlives it. Throws invalid_argument for options below 1, and for a `most_wait` below 0 or above a
  /// minute.
  explicit RankingService(ServedModel& served, const ServiceOptions& options = {})
      : served_(served),
        layout_(std::make_shared<const BatchLayout>(served.plan().layout())),
        options_(checked(options)),
        queue_(capacities_of(served.plan()), options_, served.contexts()) {
    for (const OutputInfo& output : served.plan().source().outputs) outputs_.push_back(output.name);
    for (int i = 0; i < served.contexts(); ++i) workers_.push_back({served.batch(), {}, {}, {}, {}, {}});
    try {
      for (Worker& worker : workers_) threads_.emplace_back([this, &worker] { work(worker); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~RankingService() { stop(); }
  RankingService(const RankingService&) = delete;
  RankingService& operator=(const RankingService&) = delete;

  /// Scores a request whose inputs `fill(Request)` sets, on the calling thread; returns before it is scored. Any number
  /// of threads at once. Exceptions of `fill` pass through, and `done` is then not called.
  template <class Fill>
  void score(Fill&& fill, ReplyCallback done, const CallOptions& how = {}) {
    enter([&](Batch& batch) { fill(batch.add_request()); }, how, std::move(done));
  }
  template <class Fill>
  std::future<Reply> score(Fill&& fill, const CallOptions& how = {}) {
    auto promise = std::make_shared<std::promise<Reply>>();
    std::future<Reply> reply = promise->get_future();
    score(
        fill, [promise](Reply result) { promise->set_value(std::move(result)); }, how);
    return reply;
  }
  /// The same for a request that the client has packed (docs/BATCH_FORMAT.md), at any address.
  void score_blob(Span<const std::byte> blob, ReplyCallback done, const CallOptions& how = {}) {
    enter([&](Batch& batch) { batch.add_blob(blob); }, how, std::move(done));
  }

  /// A number for CallOptions::call that no other call has.
  uint64_t new_call() { return ++last_call_; }
  /// Cancels the requests of a call: those in the queue leave it at once, and `done` is called for each, on this
  /// thread, with Refusal::cancelled. Returns their number. Requests that a worker has begun are scored, and later
  /// requests of the call as well. Any number of threads at once.
  int64_t cancel(uint64_t call) {
    Calls cancelled;
    if (call != 0) {
      const std::lock_guard<std::mutex> lock(mutex_);
      queue_.give_up(call, cancelled);
      counters_.refused_by[static_cast<size_t>(Refusal::cancelled)] += static_cast<int64_t>(cancelled.size());
      free_places(cancelled.size());
    }
    for (Call& one : cancelled) refuse(one, Refusal::cancelled);
    const auto count = static_cast<int64_t>(cancelled.size());
    if (count > 0) {
      const std::lock_guard<std::mutex> lock(mutex_);
      keep(cancelled);
    }
    return count;
  }

  /// Refuses new requests, scores all waiting requests, and returns when these are answered. Any number of threads at
  /// once, but not a callback.
  void stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    const std::lock_guard<std::mutex> one_at_a_time(stop_mutex_);
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }

  /// The names of the model's outputs, in the order of Reply::scores.
  const std::vector<std::string>& outputs() const { return outputs_; }
  ServiceCounters counters() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return counters_;
  }
  /// Requests that wait now.
  int64_t waiting() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return queue_.size();
  }

 private:
  using Clock = detail::ServiceClock;

  /// A request on its way. Reused, with its memory.
  struct Call : detail::WaitingCall {
    explicit Call(const std::shared_ptr<const BatchLayout>& layout) : packed(layout) {}

    Batch packed;
    ReplyCallback done;
    Reply reply;
  };
  using Queue = detail::MergeQueue<Call>;
  using Calls = Queue::Calls;
  struct Worker {
    Batch batch;
    Calls calls, late;
    size_t capacity;
    Clock::time_point begin;
    std::optional<Clock::duration> took;  ///< of the last batch; none when it failed
  };

  static ServiceOptions checked(const ServiceOptions& options) {
    Problems problems;
    const auto check = [&](const char* what, int64_t value) {
      if (value < 1) problems.add(what, "1 or more", std::to_string(value));
    };
    check("most_waiting", options.most_waiting);
    check("most_merged", options.most_merged);
    check("most_rows", options.most_rows);
    check("most_request_rows", options.most_request_rows);
    if (options.most_wait < std::chrono::seconds(0) || options.most_wait > std::chrono::minutes(1))
      problems.add("most_wait", "0 to 60000000 us", std::to_string(options.most_wait.count()));
    problems.throw_if_any();
    return options;
  }

  static detail::Capacities capacities_of(const Plan& plan) {
    std::vector<std::vector<int64_t>> rows;
    for (const Capacity& capacity : plan.options().capacities) rows.push_back(plan::rows_at(plan.source(), capacity));
    return {std::move(rows), plan.layout().axes().size()};
  }

  template <class Pack>
  void enter(Pack&& pack, const CallOptions& how, ReplyCallback done) {
    Calls call, displaced;  // one, or none yet
    bool is_tried = false;
    // A place is taken before the request is packed: an overloaded service spends no time on refused requests.
    const Refusal refusal = take_place(how, call, displaced, is_tried);
    if (!displaced.empty()) {
      refuse(displaced.front(), Refusal::displaced);
      const std::lock_guard<std::mutex> lock(mutex_);
      keep(displaced);
    }
    if (refusal != Refusal::none) return done(refused(refusal));
    try {
      if (call.empty()) call.emplace_back(layout_);
      Call& entered = call.front();
      pack(entered.packed);
      entered.packed.close();
      entered.rows.clear();
      for (size_t axis = 0; axis < layout_->axes().size(); ++axis)
        entered.rows.push_back(entered.packed.num_rows({static_cast<int>(axis)}));
    } catch (...) {
      leave(call);
      throw;
    }
    Call& entered = call.front();
    Reply bad;
    bad.outcome = Outcome::bad_request;
    bad.message = entered.packed.status(0).message;
    const auto longest = std::max_element(entered.rows.begin(), entered.rows.end());
    if (bad.message.empty() && *longest > options_.most_request_rows)
      bad.message = "rows of '" + layout_->axes()[static_cast<size_t>(longest - entered.rows.begin())].name +
                    "': expected at most " + std::to_string(options_.most_request_rows) + ", got " +
                    std::to_string(*longest);
    if (!bad.message.empty()) {
      leave(call, 1);
      return done(std::move(bad));
    }
    entered.done = std::move(done);
    entered.deadline = how.deadline;
    entered.priority = how.priority;
    entered.is_tried = is_tried;
    entered.call = how.call;
    entered.arrived = Clock::now();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      queue_.push(call);
    }
    changed_.notify_one();
  }

  Refusal take_place(const CallOptions& how, Calls& call, Calls& displaced, bool& is_tried) {
    const Clock::time_point now = Clock::now();
    const std::lock_guard<std::mutex> lock(mutex_);
    // An idle service tries every request that has time left: so it learns when batches have become faster again.
    is_tried = num_idle_ > 0 && num_places_ == 0;
    const bool is_late =
        is_tried ? how.deadline <= now
                 : queue_.comes_too_late(now, how.deadline, how.priority, static_cast<int>(workers_.size()));
    Refusal refusal = Refusal::none;
    if (stopping_)
      refusal = Refusal::stopping;
    else if (is_late)
      refusal = Refusal::late;
    else if (num_places_ == options_.most_waiting && !(how.priority == Priority::high && queue_.give_up_one(displaced)))
      refusal = Refusal::full;
    if (refusal != Refusal::none) {
      ++counters_.refused_by[static_cast<size_t>(refusal)];
      return refusal;
    }
    if (displaced.empty())
      ++num_places_;
    else
      ++counters_.refused_by[static_cast<size_t>(Refusal::displaced)];
    if (!spare_.empty()) call.splice(call.end(), spare_, spare_.begin());
    return refusal;
  }

  /// Gives up the place of a request that will not be scored.
  void leave(Calls& call, int64_t num_bad = 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    counters_.bad += num_bad;
    free_places(1);
    keep(call);
  }

  // With the mutex held:
  void keep(Calls& calls) {
    for (Call& call : calls) call.packed.clear();
    spare_.splice(spare_.begin(), calls);  // the last ones used come next: their memory is in the cache
  }
  void free_places(size_t count) {
    num_places_ -= static_cast<int64_t>(count);
    if (num_places_ == 0 && stopping_) changed_.notify_all();
  }

  /// Waits for requests; false when none will come.
  bool take(Worker& worker) {
    std::unique_lock<std::mutex> lock(mutex_);
    keep(worker.late);
    if (!worker.calls.empty()) {
      queue_.done(worker.capacity, worker.took);
      keep(worker.calls);
    }
    ++num_idle_;
    while (!stopping_ || num_places_ > 0) {
      const Clock::time_point now = Clock::now();
      const Queue::Taken taken = queue_.take(now, stopping_, worker.calls, worker.late);
      if (!worker.calls.empty() || !worker.late.empty()) {
        worker.capacity = taken.capacity;
        worker.begin = now;
        break;
      }
      if (taken.again == Clock::time_point::max())
        changed_.wait(lock);
      else
        changed_.wait_until(lock, taken.again);
    }
    --num_idle_;
    counters_.refused_by[static_cast<size_t>(Refusal::late)] += static_cast<int64_t>(worker.late.size());
    free_places(worker.calls.size() + worker.late.size());
    // The remaining requests may be ripe before others come, and the worker that was notified of them has this batch.
    if (!queue_.empty()) changed_.notify_one();
    return !worker.calls.empty() || !worker.late.empty();
  }

  void work(Worker& worker) {
    while (take(worker)) {
      for (Call& call : worker.late) refuse(call, Refusal::late);
      if (worker.calls.empty()) continue;
      for (Call& call : worker.calls) call.reply = {};
      worker.took.reset();
      try {
        run(worker);
      } catch (const std::exception& error) {
        fail(worker.calls, error.what());
      } catch (...) {
        fail(worker.calls, "an error of an unknown type");
      }
      count(worker.calls);
      for (Call& call : worker.calls) answer(call);
    }
  }

  void run(Worker& worker) const {
    worker.batch.clear();
    for (Call& call : worker.calls) worker.batch.append(call.packed);
    const ContextLease context = served_.acquire();
    const Scores scores = context->run(worker.batch);
    const Clock::duration took = Clock::now() - worker.begin;
    for (const std::string& name : outputs_) {
      const OutputScores output = scores[name];
      int64_t r = 0;
      for (Call& call : worker.calls) {
        const Span<const float> values = output.of(r++);
        call.reply.scores.emplace_back(values.begin(), values.end());
      }
    }
    for (Call& call : worker.calls) {
      call.reply.version = context.version();
      call.reply.merged = static_cast<int64_t>(worker.calls.size());
      call.reply.waited_seconds = std::chrono::duration<double>(worker.begin - call.arrived).count();
      call.reply.computed_seconds = std::chrono::duration<double>(took).count();
    }
    worker.took = took;
  }

  static void answer(Call& call) { std::exchange(call.done, nullptr)(std::move(call.reply)); }
  static void refuse(Call& call, Refusal refusal) {
    call.reply = refused(refusal);
    answer(call);
  }
  static Reply refused(Refusal refusal) {
    Reply reply;
    reply.outcome = Outcome::refused;
    reply.refusal = refusal;
    set_message(reply, to_string(refusal));
    return reply;
  }
  static void fail(Calls& calls, const char* message) {
    for (Call& call : calls) {
      call.reply = {};
      call.reply.outcome = Outcome::failed;
      set_message(call.reply, message);
    }
  }
  static void set_message(Reply& reply, const char* message) {
    try {
      reply.message = message;
    } catch (const std::bad_alloc&) {  // then without the message
    }
  }

  /// The requests of one batch, which all have the same outcome.
  void count(const Calls& calls) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool scored = calls.front().reply.outcome == Outcome::scored;
    (scored ? counters_.scored : counters_.failed) += static_cast<int64_t>(calls.size());
    if (scored) ++counters_.batches;
  }

  ServedModel& served_;
  const std::shared_ptr<const BatchLayout> layout_;
  const ServiceOptions options_;
  std::vector<std::string> outputs_;

  std::atomic<uint64_t> last_call_{0};
  mutable std::mutex mutex_;  // guards the members below, up to stopping_
  Queue queue_;
  Calls spare_;
  int64_t num_places_ = 0;  // taken: by requests that are being packed or wait
  int num_idle_ = 0;        // workers that wait
  ServiceCounters counters_;
  bool stopping_ = false;
  std::condition_variable changed_;

  std::vector<Worker> workers_;
  std::vector<std::thread> threads_;
  std::mutex stop_mutex_;  // joining them
};

}}  // namespace warprank::v0
