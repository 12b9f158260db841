// SPDX-License-Identifier: Apache-2.0

/// A feed: each user asks for some pages of items, one after the other. As whole requests to a service of the plan, and
/// as the divided plan has it: the first page whole, then items alone, by the states that the service keeps.
///
///     feed_pages --model user_heavy --items 20
///     feed_pages --model din_mmoe --data FOLDER    # users of MovieLens 100K, trained weights
///     feed_pages --exchange 0.1                    # the model is exchanged meanwhile

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <future>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../embed_in_service/swapper.hpp"
#include "../models/meituan_like.hpp"
#include "../models/user_heavy.hpp"
#include "../models/wide_deep.hpp"
#include "../movielens/data.hpp"
#include "../movielens/model.hpp"
#include "pages.hpp"
#include "support/random_data.hpp"
#include "warprank/host.hpp"
#include "warprank/serving.hpp"

namespace feed {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string model = "user_heavy";
  std::string data;  ///< a folder with MovieLens; empty: weights and requests are random
  Asked asked;
  int64_t clients = 2, rounds = 6;
  int contexts = 1;
  double seconds = 3;  ///< for each way, all rounds together
  int64_t user_mb = 256;
  double exchange = 0;  ///< seconds from one exchange of the model to the next; 0: none

  double round_seconds() const { return seconds / static_cast<double>(rounds); }
};

/// What one way of asking took.
struct Measured {
  std::vector<double> first_ms, later_ms;
  double seconds = 0;
  int64_t bytes = 0, unknown = 0;
  std::vector<double> exchange_ms;

  int64_t pages() const { return static_cast<int64_t>(first_ms.size() + later_ms.size()); }
  void add(const Measured& other) {
    first_ms.insert(first_ms.end(), other.first_ms.begin(), other.first_ms.end());
    later_ms.insert(later_ms.end(), other.later_ms.begin(), other.later_ms.end());
    bytes += other.bytes, unknown += other.unknown;
  }
};

/// The value that a share of the values do not exceed; 0 without any.
double percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

/// Clients that each ask for the pages of one user after another, and wait for every reply, until the time is over.
class Feed {
 public:
  Feed(RankingService& service, const std::vector<std::vector<Page>>& users, const Options& options, bool keeps_users)
      : service_(service), users_(users), options_(options), keeps_users_(keeps_users) {}

  void run(double seconds) {
    const Clock::time_point begin = Clock::now(), end = begin + std::chrono::duration_cast<Clock::duration>(
                                                                    std::chrono::duration<double>(seconds));
    std::vector<Measured> of_clients(static_cast<size_t>(options_.clients));
    std::vector<std::thread> clients;
    for (Measured& of_client : of_clients)
      clients.emplace_back([&] {
        while (Clock::now() < end) ask_for_all(of_client, next_visit_++);
      });
    for (std::thread& client : clients) client.join();
    if (num_wrong_ > 0) throw std::runtime_error(std::to_string(num_wrong_) + " pages with other scores than alone");
    for (const Measured& of_client : of_clients) measured_.add(of_client);
    measured_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  }
  Measured& measured() { return measured_; }

 private:
  void ask_for_all(Measured& measured, uint64_t visit) {
    CallOptions how;
    if (keeps_users_) how.user = UserKey{visit, 0};
    for (size_t p = 0; p < static_cast<size_t>(options_.asked.pages); ++p) {
      const Page& page = users_[visit % users_.size()][p];
      const Clock::time_point begin = Clock::now();
      Reply reply = ask(keeps_users_ && p > 0 ? page.later : page.whole, how, measured);
      if (reply.refusal == Refusal::unknown_user) {
        ++measured.unknown;
        reply = ask(page.whole, how, measured);
      }
      const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
      (p == 0 ? measured.first_ms : measured.later_ms).push_back(ms);
      num_wrong_ += reply.outcome != Outcome::scored || reply.scores != page.scores;
    }
  }
  Reply ask(const Blob& blob, const CallOptions& how, Measured& measured) {
    measured.bytes += static_cast<int64_t>(blob.size());
    std::promise<Reply> reply;
    service_.score_blob(
        Span<const std::byte>(blob), [&](Reply got) { reply.set_value(std::move(got)); }, how);
    return reply.get_future().get();
  }

  RankingService& service_;
  const std::vector<std::vector<Page>>& users_;
  const Options& options_;
  const bool keeps_users_;
  std::atomic<uint64_t> next_visit_{0};
  std::atomic<int64_t> num_wrong_{0};
  Measured measured_;
};

void print(const char* way, Measured& measured) {
  std::printf("%-14s %9.0f %12.0f ", way, static_cast<double>(measured.pages()) / measured.seconds,
              static_cast<double>(measured.bytes) / static_cast<double>(measured.pages()));
  for (std::vector<double>* const ms : {&measured.first_ms, &measured.later_ms})
    std::printf("  %7.3f %7.3f %7.3f", percentile(*ms, 0.5), percentile(*ms, 0.99), percentile(*ms, 0.999));
  std::printf("\n");
}

/// One turn of a way of asking, while its model is exchanged for the same one as often as the options say.
void run_round(Feed& feed, ServedModel& served, const NextModel& weights, const Options& options) {
  const serving::SwapTimes times{.every = options.exchange, .begin = Clock::now()};
  serving::Swapper swapper(served, {weights}, SwapMode::full, times, {});
  feed.run(options.round_seconds());
  for (const serving::Swapped& swap : swapper.stop())
    feed.measured().exchange_ms.push_back(1e3 * (swap.ended - swap.began));
}

NextModel weights_of(const Plan& plan, const Options& options) {
  if (options.data.empty())
    return {.dense = test_support::random_weights(plan, 1), .tables = test_support::random_tables(plan, table_rows, 2)};
  const std::string folder = WARPRANK_EXAMPLE_FOLDER "/../movielens/weights";
  return {.dense = Weights::open(folder + "/dense.safetensors"),
          .tables = Weights::open(folder + "/tables.safetensors")};
}

Requests requests_of(const DividedPlan& divided, const Options& options) {
  if (options.data.empty()) return random_requests(divided, options.asked);
  return movielens_requests(divided.whole, movielens::load(options.data), options.asked);
}

void measure(const Plan& plan, const Options& options) {
  const NextModel weights = weights_of(plan, options);
  Tables tables = Tables::load(plan, weights.tables, host());
  Model model = Model::bind(plan, weights.dense, tables);
  DividedPlan divided = divide(plan, "item");
  const std::vector<std::vector<Page>> users = make_pages(divided, model.context(), requests_of(divided, options));
  std::printf("%s\n", divided.describe().c_str());
  Servable both = Servable::bind(std::move(divided), weights.dense, tables);

  ServedModel whole(std::move(model), tables, {.contexts = options.contexts});
  ServedModel in_two(std::move(both), std::move(tables), {.contexts = options.contexts});
  UserStates states({.most_bytes = options.user_mb << 20});
  RankingService whole_service(whole), service(in_two, states);
  Feed without(whole_service, users, options, false), with(service, users, options, true);
  for (int64_t round = 0; round < options.rounds; ++round) {
    run_round(without, whole, weights, options);
    run_round(with, in_two, weights, options);
  }

  std::printf("%lld pages of %lld items for each user\n\n", static_cast<long long>(options.asked.pages),
              static_cast<long long>(options.asked.items));
  std::printf("                                             first page, ms           later pages, ms\n");
  std::printf("                 pages/s   bytes/page       p50     p99   p99.9      p50     p99   p99.9\n");
  print("whole requests", without.measured());
  print("states kept", with.measured());
  const UserStatesCounters counters = states.counters();
  const double pages_of_both = static_cast<double>(with.measured().pages()) / with.measured().seconds /
                               (static_cast<double>(without.measured().pages()) / without.measured().seconds);
  std::printf("\n%.2f times the pages; %lld users kept in %.1f MB, %lld evicted, %lld asked for again in full\n",
              pages_of_both, static_cast<long long>(counters.states), static_cast<double>(counters.bytes) / 1e6,
              static_cast<long long>(counters.evicted), static_cast<long long>(with.measured().unknown));
  for (const auto& [way, feed] : {std::pair("whole requests", &without), std::pair("states kept", &with)})
    if (std::vector<double>& ms = feed->measured().exchange_ms; !ms.empty())
      std::printf("%s: %zu exchanges of the model, %.1f ms each (median)\n", way, ms.size(), percentile(ms, 0.5));
}

CompileOptions compiling(const Graph& graph, const Options& options) {
  CompileOptions compiling;
  for (const int64_t requests : {int64_t{1}, options.clients}) {
    Capacity& capacity = compiling.capacities.emplace_back();
    capacity.requests = requests;
    capacity.items = requests * options.asked.items;
    std::vector<int64_t> rows = {requests};
    for (size_t a = 1; a < graph.axes.size(); ++a) {
      rows.push_back(rows[static_cast<size_t>(graph.axes[a].parent)] * rows_of(graph.axes[a], options.asked));
      capacity.rows[graph.axes[a].name] = rows.back();
    }
  }
  return compiling;
}

int run(int argc, char** argv) {
  const std::map<std::string, ModelFunction> models = {{"wide_deep", ::models::wide_deep},
                                                       {"din_mmoe", movielens::din_mmoe},
                                                       {"user_heavy", ::models::user_heavy},
                                                       {"meituan_like", ::models::meituan_like}};
  CLI::App app("Measures what it brings to keep what a model computed of a user.");
  Options options;
  app.add_option("--model", options.model, "A reference model, of random weights unless --data is given")
      ->check(CLI::IsMember(models))
      ->capture_default_str();
  const auto add = [&](const char* name, int64_t& value, const char* what) {
    return app.add_option(name, value, what)->check(CLI::PositiveNumber)->capture_default_str();
  };
  add("--pages", options.asked.pages, "Pages that each user asks for");
  add("--items", options.asked.items, "Items of a page");
  CLI::Option* const events = add("--events", options.asked.events, "Events of each history");
  add("--users", options.asked.users, "Users whose requests are made beforehand");
  add("--clients", options.clients, "Threads that ask and wait");
  add("--rounds", options.rounds, "Turns of both ways");
  add("--user-mb", options.user_mb, "Memory for states of users");
  app.add_option("--data", options.data,
                 "Folder with MovieLens 100K, for din_mmoe: its trained weights, and requests of these users")
      ->check(CLI::ExistingDirectory)
      ->excludes(events);
  app.add_option("--contexts", options.contexts, "Batches at a time, each with a thread")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "For each way")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--exchange", options.exchange,
                 "Seconds from one exchange of the model, for the same one, to the next, in each turn; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  if (!options.data.empty()) {
    if (options.model != "din_mmoe") throw invalid_argument("--data", "--model din_mmoe", "--model " + options.model);
    options.asked.events = movielens::longest_history;
  }
  if (options.exchange >= options.round_seconds())
    throw invalid_argument("--exchange", "less than a turn's " + std::to_string(options.round_seconds()) + " seconds",
                           std::to_string(options.exchange));
  const Graph graph = build(models.at(options.model));
  measure(compile(graph, compiling(graph, options)), options);
  return 0;
}

}  // namespace feed

int main(int argc, char** argv) {
  try {
    return feed::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
