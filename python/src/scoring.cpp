// SPDX-License-Identifier: Apache-2.0

#include "scoring.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

namespace warprank::python {

namespace {

ScoredColumns empty_columns(const Plan& plan) {
  ScoredColumns scored;
  for (const OutputInfo& output : plan.source().outputs)
    scored.outputs.push_back({plan.source().node(output.node).width, {}, {0}});
  return scored;
}

/// The first request of each batch, and the number of requests behind the last.
std::vector<int64_t> cut(const Columns& columns, int64_t rows_per_batch) {
  std::vector<int64_t> begins = {0};
  for (int64_t r = 0, rows = 0; r < columns.num_requests(); ++r) {
    const int64_t rows_after = columns.rows_before(r + 1);
    if (rows_after - rows < rows_per_batch && r + 1 < columns.num_requests()) continue;
    begins.push_back(r + 1);
    rows = rows_after;
  }
  return begins;
}

ScoredColumns join(const Plan& plan, std::vector<ScoredColumns> parts) {
  ScoredColumns all = empty_columns(plan);
  for (size_t o = 0; o < all.outputs.size(); ++o) {
    OutputColumn& to = all.outputs[o];
    size_t num_values = 0;
    for (const ScoredColumns& part : parts) num_values += part.outputs[o].values.size();
    to.values.reserve(num_values);
    for (const ScoredColumns& part : parts) {
      const OutputColumn& from = part.outputs[o];
      const int64_t first = to.offsets.back();
      to.values.insert(to.values.end(), from.values.begin(), from.values.end());
      for (size_t r = 1; r < from.offsets.size(); ++r) to.offsets.push_back(first + from.offsets[r]);
    }
  }
  for (ScoredColumns& part : parts) all.failed.insert(all.failed.end(), part.failed.begin(), part.failed.end());
  return all;
}

}  // namespace

Pending submit_batch(const Columns& columns, int64_t begin, int64_t end, Worker& worker,
                     std::optional<StreamHandle> stream) {
  worker.batch.clear();
  Columns::Workspace workspace;
  columns.pack(begin, end, worker.batch, workspace);
  if (columns.has_device_values()) return submit_with_device_values(columns, begin, worker);
  return worker.context.submit(worker.batch, stream);
}

void score_batch(const Columns& columns, int64_t begin, int64_t end, Worker& worker, ScoredColumns& scored) {
  Pending pending = submit_batch(columns, begin, end, worker);
  const Scores scores = pending.wait();
  const std::vector<OutputInfo>& outputs = worker.context.plan().source().outputs;
  if (scored.outputs.empty()) scored = empty_columns(worker.context.plan());
  for (size_t o = 0; o < outputs.size(); ++o) {
    const OutputScores output = scores[outputs[o].name];
    OutputColumn& to = scored.outputs[o];
    for (int64_t r = 0; r < end - begin; ++r) {
      const Span<const float> values = output.of(r);
      to.values.insert(to.values.end(), values.begin(), values.end());
      to.offsets.push_back(to.offsets.back() + values.size() / to.width);
    }
  }
  for (int64_t r = 0; r < end - begin; ++r)
    if (!scores.scored(r)) scored.failed.emplace_back(begin + r, worker.batch.status(r).message);
}

std::unique_ptr<Worker> Scorer::acquire() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Worker> worker = std::move(idle_.back());
      idle_.pop_back();
      return worker;
    }
  }
  return std::make_unique<Worker>(worker());
}

void Scorer::release(std::unique_ptr<Worker> worker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(worker));
}

std::map<std::string, LookupCounters> Scorer::counters() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::map<std::string, LookupCounters> sums;
  for (const std::unique_ptr<Worker>& worker : idle_)
    for (const FeatureCounters& feature : worker->context.counters()) sums[feature.feature] += feature.counters;
  return sums;
}

ScoredColumns Scorer::score(const Columns& columns, int64_t threads, int64_t rows_per_batch) {
  const std::vector<int64_t> begins = cut(columns, rows_per_batch);
  const auto num_batches = static_cast<int64_t>(begins.size()) - 1;
  std::vector<ScoredColumns> parts(static_cast<size_t>(num_batches));
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    std::unique_ptr<Worker> worker = acquire();
    for (int64_t b = next++; b < num_batches; b = next++) {
      const auto at = static_cast<size_t>(b);
      score_batch(columns, begins[at], begins[at + 1], *worker, parts[at]);
    }
    release(std::move(worker));
  };
  const int64_t num_threads = std::min(threads, std::max<int64_t>(num_batches, 1));
  std::vector<std::exception_ptr> thrown(static_cast<size_t>(num_threads));
  const auto guarded = [&](std::exception_ptr& error) {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
      next = num_batches;  // the others need not go on
    }
  };
  std::vector<std::thread> others;
  for (int64_t t = 1; t < num_threads; ++t) others.emplace_back([&, t] { guarded(thrown[static_cast<size_t>(t)]); });
  guarded(thrown[0]);
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& error : thrown)
    if (error != nullptr) std::rethrow_exception(error);
  return join(model_.plan(), std::move(parts));
}

}  // namespace warprank::python
