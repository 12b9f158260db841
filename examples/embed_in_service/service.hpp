// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A model behind the request threads of a server (brpc, gRPC, any other): copy this file, it is meant to be changed.
/// docs/SERVING.md says how to choose its options.
///
///     ServedModel served(model, tables, {.contexts = 4});
///     RankingService service(served);
///     std::future<Reply> reply = service.score([&](Request request) { request.ids(film_id, films); });   // any thread
///     served.swap(next, SwapMode::full);                                            // meanwhile, one more thread
///
/// Each request thread packs its own request into a batch of one. A worker thread, one for each context, takes what is
/// waiting, as far as it fits one of the plan's capacities, and runs it as one batch: requests merge because others
/// came while all workers were busy, never by waiting for others to come.
///
/// Merging copies blobs, some KB for each request, instead of letting request threads fill one open batch: that would
/// save the copy, but the whole batch would wait for the thread that was interrupted while it filled its part.

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "warprank/model.hpp"
#include "warprank/serving.hpp"

namespace serving {

enum class Outcome {
  scored,
  bad_request,  ///< what it was filled with is wrong, which the message tells; trying again does not help
  refused,      ///< too many are waiting, or the service stops; another server may take it
  failed        ///< the engine could not run the batch, which the message tells
};

struct Reply {
  Outcome outcome = Outcome::scored;
  std::string message;                     ///< empty when scored
  std::vector<std::vector<float>> scores;  ///< [outputs][rows * width]; outputs as RankingService::outputs() has them
};

/// Called once for each request: by a worker, or by the thread that asked when the request is bad or refused. It must
/// not throw, and should be short, since a context waits for it.
using Callback = std::function<void(Reply)>;

struct ServiceOptions {
  int64_t most_waiting = 256;  ///< requests that are packed or wait; those beyond are refused
  int64_t most_merged = 64;    ///< requests in a batch, of which the plan's capacities may allow fewer
};

struct ServiceCounters {
  int64_t scored = 0, bad = 0, refused = 0, failed = 0;  ///< requests
  int64_t batches = 0;                                   ///< that had the scored ones
};

class RankingService {
 public:
  /// `served` outlives it. Throws invalid_argument for options below 1.
  explicit RankingService(warprank::ServedModel& served, const ServiceOptions& options = {})
      : served_(served),
        layout_(std::make_shared<const warprank::BatchLayout>(served.plan().layout())),
        options_(options) {
    warprank::Problems problems;
    const auto check = [&](const char* what, int64_t value) {
      if (value < 1) problems.add(what, "1 or more", std::to_string(value));
    };
    check("most_waiting", options.most_waiting);
    check("most_merged", options.most_merged);
    problems.throw_if_any();

    const warprank::Graph& graph = served.plan().source();
    for (const warprank::Capacity& capacity : served.plan().options().capacities)
      capacities_.push_back(warprank::plan::rows_at(graph, capacity));
    for (const warprank::OutputInfo& output : graph.outputs) outputs_.push_back(output.name);
    const std::vector<int64_t> no_rows(layout_->axes().size());
    for (int i = 0; i < served.contexts(); ++i) workers_.push_back({served.batch(), {}, no_rows});
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
  /// of threads at once. What `fill` throws comes out, and `done` is not called.
  template <class Fill>
  void score(Fill&& fill, Callback done) {
    enter([&](warprank::Batch& batch) { fill(batch.add_request()); }, std::move(done));
  }
  template <class Fill>
  std::future<Reply> score(Fill&& fill) {
    auto promise = std::make_shared<std::promise<Reply>>();
    std::future<Reply> reply = promise->get_future();
    score(fill, [promise](Reply result) { promise->set_value(std::move(result)); });
    return reply;
  }
  /// The same for a request that the client has packed (docs/BATCH_FORMAT.md), at any address.
  void score_blob(warprank::Span<const std::byte> blob, Callback done) {
    enter([&](warprank::Batch& batch) { batch.add_blob(blob); }, std::move(done));
  }

  /// Refuses what comes from now on, scores all that is waiting, and returns when that is answered. Any number of
  /// threads at once, but not a callback.
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

 private:
  /// A request on its way. Used again, with the memory it has.
  struct Call {
    warprank::Batch packed;
    std::vector<int64_t> rows;  // [axes]
    Callback done;
    Reply reply;
  };
  /// Calls go from list to list by splicing, which needs no memory: a worker has nobody to tell that there is none.
  using Calls = std::list<Call>;
  struct Worker {
    warprank::Batch batch;
    Calls calls;
    std::vector<int64_t> rows;  // [axes], of the calls together
  };

  template <class Pack>
  void enter(Pack&& pack, Callback done) {
    Calls call;  // one, or none yet
    // A place is taken before the request is packed: an overloaded service spends no time on what it refuses.
    if (const char* const reason = take_place(call)) return done({Outcome::refused, reason, {}});
    try {
      if (call.empty()) call.push_back({warprank::Batch(layout_), {}, {}, {}});
      warprank::Batch& packed = call.front().packed;
      pack(packed);
      packed.close();
      call.front().rows.clear();
      for (size_t axis = 0; axis < layout_->axes().size(); ++axis)
        call.front().rows.push_back(packed.num_rows({static_cast<int>(axis)}));
    } catch (...) {
      leave(call);
      throw;
    }
    if (const warprank::Status status = call.front().packed.status(0); !status.ok()) {
      leave(call, 1);
      return done({Outcome::bad_request, status.message, {}});
    }
    call.front().done = std::move(done);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_.splice(waiting_.end(), call);
    }
    changed_.notify_one();
  }

  /// Why there is no place, or null.
  const char* take_place(Calls& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const char* const reason = stopping_                              ? "the service is stopping"
                               : num_places_ == options_.most_waiting ? "too many requests are waiting"
                                                                      : nullptr;
    if (reason != nullptr) {
      ++counters_.refused;
    } else {
      ++num_places_;
      if (!spare_.empty()) call.splice(call.end(), spare_, spare_.begin());
    }
    return reason;
  }

  /// Gives up the place of a request that will not be scored.
  void leave(Calls& call, int64_t num_bad = 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    counters_.bad += num_bad;
    free_place();
    keep(call);
  }

  // With the mutex held:
  void keep(Calls& calls) {
    for (Call& call : calls) call.packed.clear();
    spare_.splice(spare_.begin(), calls);  // the last ones used come next: their memory is in the cache
  }
  void free_place() {
    if (--num_places_ == 0 && stopping_) changed_.notify_all();
  }

  bool fits(const std::vector<int64_t>& rows, const std::vector<int64_t>& more) const {
    return std::any_of(capacities_.begin(), capacities_.end(), [&](const std::vector<int64_t>& most) {
      for (size_t axis = 0; axis < most.size(); ++axis)
        if (rows[axis] + more[axis] > most[axis]) return false;
      return true;
    });
  }

  /// Waits for requests, oldest first; false when none will come. A request that is above all capacities comes alone.
  bool take(Worker& worker) {
    std::unique_lock<std::mutex> lock(mutex_);
    keep(worker.calls);
    changed_.wait(lock, [&] { return !waiting_.empty() || (stopping_ && num_places_ == 0); });
    std::fill(worker.rows.begin(), worker.rows.end(), 0);
    while (!waiting_.empty() && static_cast<int64_t>(worker.calls.size()) < options_.most_merged) {
      const std::vector<int64_t>& more = waiting_.front().rows;
      if (!worker.calls.empty() && !fits(worker.rows, more)) break;
      for (size_t axis = 0; axis < more.size(); ++axis) worker.rows[axis] += more[axis];
      worker.calls.splice(worker.calls.end(), waiting_, waiting_.begin());
      free_place();
    }
    return !worker.calls.empty();
  }

  void work(Worker& worker) {
    while (take(worker)) {
      for (Call& call : worker.calls) call.reply = {};
      try {
        run(worker);
      } catch (const std::exception& error) {
        fail(worker.calls, error.what());
      } catch (...) {
        fail(worker.calls, "an error of an unknown type");
      }
      count(worker.calls);
      for (Call& call : worker.calls) std::exchange(call.done, nullptr)(std::move(call.reply));
    }
  }

  void run(Worker& worker) const {
    worker.batch.clear();
    for (Call& call : worker.calls) worker.batch.append(call.packed);
    const warprank::ContextLease context = served_.acquire();
    const warprank::Scores scores = context->run(worker.batch);
    for (const std::string& name : outputs_) {
      const warprank::OutputScores output = scores[name];
      int64_t r = 0;
      for (Call& call : worker.calls) {
        const warprank::Span<const float> values = output.of(r++);
        call.reply.scores.emplace_back(values.begin(), values.end());
      }
    }
  }

  static void fail(Calls& calls, const char* message) {
    for (Call& call : calls) {
      call.reply = {Outcome::failed, {}, {}};
      try {
        call.reply.message = message;
      } catch (const std::bad_alloc&) {  // then without the message
      }
    }
  }

  /// Of one batch, which all have the same outcome.
  void count(const Calls& calls) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool scored = calls.front().reply.outcome == Outcome::scored;
    (scored ? counters_.scored : counters_.failed) += static_cast<int64_t>(calls.size());
    if (scored) ++counters_.batches;
  }

  warprank::ServedModel& served_;
  const std::shared_ptr<const warprank::BatchLayout> layout_;
  const ServiceOptions options_;
  std::vector<std::vector<int64_t>> capacities_;  // [capacities][axes]
  std::vector<std::string> outputs_;

  mutable std::mutex mutex_;  // what follows, up to stopping_
  Calls waiting_, spare_;
  int64_t num_places_ = 0;  // taken: by requests that are being packed or wait
  ServiceCounters counters_;
  bool stopping_ = false;
  std::condition_variable changed_;

  std::vector<Worker> workers_;
  std::vector<std::thread> threads_;
  std::mutex stop_mutex_;  // joining them
};

}  // namespace serving
