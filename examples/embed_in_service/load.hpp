// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a service does at a given rate. The load is open-loop: requests arrive when a Poisson process says so, whether
/// or not earlier ones are answered, and a latency counts from that moment, also when the client's thread was late to
/// send. A client that waits for answers before it asks again would leave out just the requests that would have waited.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "../movielens/inputs.hpp"
#include "models.hpp"
#include "warprank/serving.hpp"

namespace serving {

using Clock = std::chrono::steady_clock;

inline Clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

struct LoadOptions {
  double rate = 100;        ///< requests per second
  double seconds = 5;       ///< that are measured
  double warm_up = 1;       ///< seconds before them
  int64_t clients = 2;      ///< threads that pack and send
  uint64_t seed = 1;        ///< of the arrivals
  Clock::time_point begin;  ///< of the warm-up
};

/// When a request arrived, in seconds since the end of the warm-up, and the milliseconds until its answer.
struct Latency {
  double at = 0, ms = 0;
};

struct LoadResult {
  double served = 0;                  ///< requests answered in the measured time, per second
  std::vector<Latency> latencies;     ///< ascending by milliseconds, of those that arrived in it and were scored
  int64_t refused = 0, unscored = 0;  ///< of those that arrived in it; unscored: bad or failed
  int64_t mixed = 0;                  ///< of all: scored, but not as the model that they name
  double per_batch = 0;               ///< requests in a batch, from the end of the warm-up on

  /// The latency that a share of the scored requests do not exceed; NaN when there are none.
  double percentile(double share) const {
    if (latencies.empty()) return std::nan("");
    const double rank = std::ceil(share * static_cast<double>(latencies.size()));
    return latencies[static_cast<size_t>(std::max(rank, 1.0)) - 1].ms;
  }
};

namespace detail {

/// One request. Only the thread that answers it writes to it.
struct Arrival {
  double at = 0;  ///< seconds since the beginning
  double answered = 0;
  warprank::Outcome outcome = warprank::Outcome::failed;
  bool is_mixed = false;
};

inline std::vector<Arrival> poisson_arrivals(double rate, double seconds, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(rate);
  std::vector<Arrival> arrivals;
  for (double at = gap(random); at < seconds; at += gap(random)) arrivals.push_back({at});
  return arrivals;
}

}  // namespace detail

/// Loads the service, then stops it. Each client sends the requests in turn, from one of its own on.
inline LoadResult run_load(warprank::RankingService& service, const movielens::Inputs& inputs,
                           const std::vector<movielens::RequestFeatures>& requests, const ExpectedScores& expected,
                           const LoadOptions& options) {
  using namespace detail;
  const double end = options.warm_up + options.seconds;
  std::vector<std::vector<Arrival>> arrivals;  // of each client: processes of Poisson add up to one
  for (int64_t c = 0; c < options.clients; ++c)
    arrivals.push_back(poisson_arrivals(options.rate / static_cast<double>(options.clients), end,
                                        options.seed + static_cast<uint64_t>(c)));

  const Clock::time_point begin = options.begin;
  const auto time_of = [&](double seconds) { return begin + to_duration(seconds); };
  std::vector<std::thread> clients;
  for (size_t c = 0; c < arrivals.size(); ++c)
    clients.emplace_back([&, c] {
      size_t next = requests.size() * c / arrivals.size();
      for (Arrival& arrival : arrivals[c]) {
        std::this_thread::sleep_until(time_of(arrival.at));
        const size_t r = next++ % requests.size();
        service.score([&](warprank::Request request) { inputs.fill(request, requests[r]); },
                      [&arrival, &expected, r, begin](const warprank::Reply& reply) {
                        arrival.outcome = reply.outcome;
                        arrival.answered = std::chrono::duration<double>(Clock::now() - begin).count();
                        arrival.is_mixed = reply.outcome == warprank::Outcome::scored && !expected.fits(r, reply);
                      });
      }
    });
  std::this_thread::sleep_until(time_of(options.warm_up));
  const warprank::ServiceCounters before = service.counters();
  for (std::thread& client : clients) client.join();
  service.stop();
  const warprank::ServiceCounters after = service.counters();

  LoadResult result;
  int64_t num_served = 0;
  for (const std::vector<Arrival>& of_client : arrivals)
    for (const Arrival& arrival : of_client) {
      const bool is_scored = arrival.outcome == warprank::Outcome::scored;
      if (is_scored && arrival.answered >= options.warm_up && arrival.answered < end) ++num_served;
      if (arrival.is_mixed) ++result.mixed;
      if (arrival.at < options.warm_up) continue;
      if (is_scored) result.latencies.push_back({arrival.at - options.warm_up, 1e3 * (arrival.answered - arrival.at)});
      if (arrival.outcome == warprank::Outcome::refused) ++result.refused;
      if (arrival.outcome == warprank::Outcome::bad_request || arrival.outcome == warprank::Outcome::failed)
        ++result.unscored;
    }
  std::sort(result.latencies.begin(), result.latencies.end(),
            [](const Latency& a, const Latency& b) { return a.ms < b.ms; });
  result.served = static_cast<double>(num_served) / options.seconds;
  if (after.batches > before.batches)
    result.per_batch =
        static_cast<double>(after.scored - before.scored) / static_cast<double>(after.batches - before.batches);
  return result;
}

}  // namespace serving
