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
/// Of a divided plan (plan/divide.hpp) the service keeps users' states, and scores a request about a known user without
/// its user's side:
///
///     Servable both = Servable::bind(divide(plan, "item"), weights, tables);
///     ServedModel served(std::move(both), std::move(tables), {.contexts = 4});
///     UserStates states;
///     RankingService service(served, states);
///     const Reply first = service.score(fill, how).get();              // how.user is the user's key
///     const Reply later = service.score_later(fill_items, how).get();  // Refusal::unknown_user: send all again
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
#include "warprank/batch/format.hpp"
#include "warprank/core/error.hpp"
#include "warprank/engine/served_model.hpp"
#include "warprank/serving/detail/divided_calls.hpp"
#include "warprank/serving/detail/merge_queue.hpp"
#include "warprank/serving/reply.hpp"
#include "warprank/serving/service_options.hpp"
#include "warprank/serving/user_states.hpp"

namespace warprank { inline namespace v0 {

class RankingService {
 public:
  /// `served` outlives it. Throws invalid_argument for options below 1, and for a `most_wait` below 0 or above a
  /// minute.
  explicit RankingService(ServedModel& served, const ServiceOptions& options = {})
      : RankingService(served, nullptr, options) {}
  /// Keeps the states of users in `states`, which outlives it and is of this service alone. Throws invalid_argument,
  /// too, if the served plan is not divided; throws the errors of DeviceStates.
  RankingService(ServedModel& served, UserStates& states, const ServiceOptions& options = {})
      : RankingService(served, &states, options) {}
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
    auto [future, done] = promised();
    score(fill, std::move(done), how);
    return std::move(future);
  }
  /// The same for a request about the user of `how`, without the user's side: `fill` sets the inputs of
  /// DividedPlan::later_requests alone. Refused at once with Refusal::unknown_user if there are no states of the user;
  /// so also later, if the model was exchanged meanwhile. Throws usage_error where the plan is not divided.
  template <class Fill>
  void score_later(Fill&& fill, ReplyCallback done, const CallOptions& how) {
    if (later_layout_ == nullptr) throw usage_error("score_later: expected a divided plan, got one that is not");
    enter([&](Batch& batch) { fill(batch.add_request()); }, how, std::move(done), true);
  }
  template <class Fill>
  std::future<Reply> score_later(Fill&& fill, const CallOptions& how) {
    auto [future, done] = promised();
    score_later(fill, std::move(done), how);
    return std::move(future);
  }
  /// The same for a request that the client has packed (docs/BATCH_FORMAT.md), at any address: a whole one, or one of
  /// DividedPlan::later_requests.
  void score_blob(Span<const std::byte> blob, ReplyCallback done, const CallOptions& how = {}) {
    const bool is_later = later_layout_ != nullptr && fingerprint_of(blob) == later_layout_->fingerprint();
    enter([&](Batch& batch) { batch.add_blob(blob); }, how, std::move(done), is_later);
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
  /// Of ServiceOptions::device_states.
  DeviceStatesCounters device_states_counters() const {
    return device_states_ ? device_states_->counters() : DeviceStatesCounters{};
  }
  /// Requests that wait now.
  int64_t waiting() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return queue_.size();
  }

 private:
  using Clock = detail::ServiceClock;

  /// A request on its way. Reused, with its memory.
  struct Call : detail::WaitingCall, detail::PackedCall {
    using PackedCall::PackedCall;

    ReplyCallback done;
    Reply reply;
  };
  using Queue = detail::MergeQueue<Call>;
  using Calls = Queue::Calls;
  struct Worker {
    Batch batch;
    std::optional<detail::DividedCalls<Call>> divided = {};  ///< of a divided plan: in its place
    Calls calls = {}, late = {}, unknown = {};
    size_t capacity = 0;
    Clock::time_point begin = {};
    std::optional<Clock::duration> took = {};  ///< of the last batch; none when it failed
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

  RankingService(ServedModel& served, UserStates* states, const ServiceOptions& options)
      : served_(served),
        states_(states),
        layout_(std::make_shared<const BatchLayout>(served.plan().layout())),
        later_layout_(later_layout_of(served)),
        options_(checked(options)),
        queue_(capacities_of(served.plan()), options_, served.contexts()) {
    for (const OutputInfo& output : served.plan().source().outputs) outputs_.push_back(output.name);
    if (states != nullptr && served.requests() == nullptr)
      throw invalid_argument("RankingService: states of users", "a divided plan", "one that is not divided");
    if (options.device_states.most_bytes != 0) {
      if (states == nullptr)
        throw invalid_argument("ServiceOptions::device_states", "a service that keeps states of users",
                               "one that does not");
      device_states_.emplace(served.device(), options.device_states);
    }
    for (int i = 0; i < served.contexts(); ++i) {
      workers_.push_back({served.batch()});
      if (served.requests() != nullptr)
        workers_.back().divided.emplace(served.requests(), states, device_states_ ? &*device_states_ : nullptr,
                                        options.compare_users, served.batch_allocator());
    }
    try {
      for (Worker& worker : workers_) threads_.emplace_back([this, &worker] { work(worker); });
    } catch (...) {
      stop();
      throw;
    }
  }

  static std::shared_ptr<const BatchLayout> later_layout_of(const ServedModel& served) {
    if (served.requests() == nullptr) return nullptr;
    return std::make_shared<const BatchLayout>(served.requests()->plan().later_requests);
  }
  static uint64_t fingerprint_of(Span<const std::byte> blob) {
    if (blob.size() < static_cast<int64_t>(sizeof(BlobHeader))) return 0;
    return detail::load_unaligned<uint64_t>(blob.data() + offsetof(BlobHeader, fingerprint));
  }
  static std::pair<std::future<Reply>, ReplyCallback> promised() {
    auto promise = std::make_shared<std::promise<Reply>>();
    return {promise->get_future(), [promise](Reply result) { promise->set_value(std::move(result)); }};
  }

  template <class Pack>
  void enter(Pack&& pack, const CallOptions& how, ReplyCallback done, bool is_later = false) {
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
      if (call.empty()) call.emplace_back(layout_, later_layout_);
      Call& entered = call.front();
      entered.is_later = is_later;
      entered.user = how.user;
      pack(entered.packed());
      entered.packed().close();
      entered.rows.clear();
      if (is_later && states_ != nullptr) entered.look_up(states_, served_.version());  // others: when they are scored
      for (int axis = 0; axis < static_cast<int>(layout_->axes().size()); ++axis) {
        entered.rows.push_back(entered.packed().num_rows({axis}));
        if (is_later && entered.states != nullptr)
          entered.rows.back() = std::max(entered.rows.back(), served_.requests()->rows(*entered.states, {axis}));
      }
    } catch (...) {
      leave(call);
      throw;
    }
    Call& entered = call.front();
    Reply bad;
    bad.outcome = Outcome::bad_request;
    bad.message = entered.packed().status(0).message;
    const auto longest = std::max_element(entered.rows.begin(), entered.rows.end());
    if (bad.message.empty() && *longest > options_.most_request_rows)
      bad.message = "rows of '" + layout_->axes()[static_cast<size_t>(longest - entered.rows.begin())].name +
                    "': expected at most " + std::to_string(options_.most_request_rows) + ", got " +
                    std::to_string(*longest);
    if (!bad.message.empty()) {
      leave(call, 1);
      return done(std::move(bad));
    }
    if (is_later && entered.states == nullptr) {
      leave(call, 0, Refusal::unknown_user);
      return done(refused(Refusal::unknown_user));
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
  void leave(Calls& call, int64_t num_bad = 0, Refusal refusal = Refusal::none) {
    const std::lock_guard<std::mutex> lock(mutex_);
    counters_.bad += num_bad;
    if (refusal != Refusal::none) ++counters_.refused_by[static_cast<size_t>(refusal)];
    free_places(1);
    keep(call);
  }

  // With the mutex held:
  void keep(Calls& calls) {
    for (Call& call : calls) call.clear();
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
    if (!worker.calls.empty() || !worker.unknown.empty()) {
      queue_.done(worker.capacity, worker.took);
      keep(worker.calls);
      keep(worker.unknown);
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
      count(worker);
      for (Call& call : worker.unknown) refuse(call, Refusal::unknown_user);
      for (Call& call : worker.calls) answer(call);
    }
  }

  void run(Worker& worker) const {
    worker.batch.clear();
    if (!worker.divided)
      for (Call& call : worker.calls) worker.batch.append(call.packed());
    const ContextLease context = served_.acquire();
    const Scores scores =
        worker.divided ? worker.divided->run(context, worker.calls, worker.unknown) : context->run(worker.batch);
    const Clock::duration took = Clock::now() - worker.begin;
    for (const std::string& name : outputs_) {
      const OutputScores output = scores[name];
      int64_t r = 0;
      for (Call& call : worker.calls) {
        const Span<const float> values = output.of(r++);
        if (call.reply.outcome == Outcome::scored) call.reply.scores.emplace_back(values.begin(), values.end());
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

  void count(const Worker& worker) {
    const auto number_of = [&](Outcome outcome) {
      return std::count_if(worker.calls.begin(), worker.calls.end(),
                           [&](const Call& call) { return call.reply.outcome == outcome; });
    };
    const int64_t scored = number_of(Outcome::scored);
    const std::lock_guard<std::mutex> lock(mutex_);
    counters_.scored += scored;
    counters_.failed += number_of(Outcome::failed);
    counters_.bad += number_of(Outcome::bad_request);
    if (scored > 0) ++counters_.batches;
    counters_.refused_by[static_cast<size_t>(Refusal::unknown_user)] += static_cast<int64_t>(worker.unknown.size());
    if (!worker.divided || scored == 0) return;
    counters_.known_users += worker.divided->known_users();
    counters_.changed_users += worker.divided->changed_users();
  }

  ServedModel& served_;
  UserStates* const states_;  // null: none are kept
  const std::shared_ptr<const BatchLayout> layout_;
  const std::shared_ptr<const BatchLayout> later_layout_;  // null: the plan is not divided
  const ServiceOptions options_;
  std::optional<DeviceStates> device_states_;
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
