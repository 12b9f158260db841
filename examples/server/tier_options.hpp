// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Options of the command line for tables that are not all on the device, or not all in memory (docs/TIERS.md).

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "event_log.hpp"
#include "tier_metrics.hpp"
#include "warprank/serving.hpp"
#include "warprank/store/change_follower.hpp"
#include "warprank/store/table_in_store.hpp"
#ifdef WARPRANK_EXAMPLE_REDIS
#include "warprank/store/redis_cluster.hpp"
#endif

namespace kserve {

class TierOptions {
 public:
  void add_to(CLI::App& app) {
    app.add_option("--place", placed_,
                   "PATTERN=device, PATTERN=host or PATTERN=cached:MB, where tables of such names lie on a GPU; the "
                   "first that fits counts");
    auto* in_redis = app.add_option(
        "--in-redis", in_redis_,
        "PATTERN=MB, tables of such names have their rows in Redis, and so many megabytes of them in memory; others "
        "have the default row and come for later. PATTERN=MB:US, batches wait for them, so many microseconds at most");
    auto* nodes = app.add_option("--redis", nodes_, "HOST:PORT of a server, or of some of a cluster")->needs(in_redis);
    in_redis->needs(nodes);
    app.add_option("--redis-user", user_, "Of the servers; none: the default one")->envname("REDIS_USER");
    app.add_option("--redis-password", password_, "Of the servers")->envname("REDIS_PASSWORD");
    app.add_option("--redis-timeout-ms", timeout_ms_, "Of a question for rows, or for changes")
        ->check(CLI::Range(1, 60'000))
        ->capture_default_str();
    app.add_flag("--follow-changes", follows_, "Apply what others publish of tables in Redis")->needs(in_redis);
  }

  /// Throws warprank::invalid_argument for what is no such option, or not in this program.
  void set(warprank::LoadOptions& options) {
    for (const std::string& text : placed_) options.placement.push_back(placement_of(text));
    if (in_redis_.empty()) return;
    connect();
    for (const std::string& text : in_redis_) options.stores.push_back(in_store_of(text));
  }

  /// What follows the changes of such tables, by `rows`, or nothing where none is wanted. All outlive it. Throws what
  /// warprank::ChangeFollower throws.
  template <class Rows>
  std::unique_ptr<warprank::ChangeFollower> follow(const warprank::ServedModel& served, Rows& rows,
                                                   const std::vector<warprank::PlacedTable>& tables,
                                                   EventLog& log) const {
    if (!follows_) return nullptr;
    const std::map<std::string, warprank::StoreCounters> in_stores = served.store_counters();
    std::vector<warprank::StoredTable> followed;
    for (const warprank::PlacedTable& table : tables)
      if (in_stores.count(table.info.name) != 0) followed.push_back({table.info.name, {table.type, table.info.dim}});
    warprank::FollowOptions options;
    options.store_timeout = std::chrono::milliseconds(timeout_ms_);
    options.on_lost = [&log](const std::string& table) { log.write("changes_lost", {{"table", table}}); };
    return std::make_unique<warprank::ChangeFollower>(store_, std::move(followed), rows, std::move(options));
  }

  /// What the connections to Redis have met; null where there are none.
  const std::function<RedisCounters()>& redis_counters() const { return redis_counters_; }

 private:
  /// "film*=cached:16" -> "film*", "cached", "16".
  struct Parts {
    explicit Parts(std::string_view text) {
      const size_t equals = text.rfind('=');
      if (equals == std::string_view::npos) return;
      pattern = text.substr(0, equals);
      const std::string_view value = text.substr(equals + 1);
      const size_t colon = value.find(':');
      first = value.substr(0, colon);
      if (colon != std::string_view::npos) second = value.substr(colon + 1);
    }
    std::string pattern, first;
    std::optional<std::string> second;
  };
  /// Nothing for what is no whole number from 1 to 10^9.
  static std::optional<int64_t> number(std::string_view text) {
    int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [read, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || read != end || value < 1 || value > 1'000'000'000) return std::nullopt;
    return value;
  }

  static std::pair<std::string, warprank::TablePlacement> placement_of(const std::string& text) {
    using warprank::Placement;
    const Parts parts(text);
    const std::optional<int64_t> megabytes = parts.second ? number(*parts.second) : std::nullopt;
    if (!parts.pattern.empty()) {
      if (parts.first == "device" && !parts.second) return {parts.pattern, {Placement::device, 0}};
      if (parts.first == "host" && !parts.second) return {parts.pattern, {Placement::host, 0}};
      if (parts.first == "cached" && megabytes) return {parts.pattern, {Placement::cached, *megabytes * 1'000'000}};
    }
    throw warprank::invalid_argument("--place", "PATTERN=device, PATTERN=host or PATTERN=cached:MB", "'" + text + "'");
  }

  std::pair<std::string, warprank::TableInStore> in_store_of(const std::string& text) const {
    const Parts parts(text);
    const std::optional<int64_t> megabytes = number(parts.first);
    const std::optional<int64_t> wait_us = parts.second ? number(*parts.second) : std::nullopt;
    if (parts.pattern.empty() || !megabytes || (parts.second && !wait_us))
      throw warprank::invalid_argument("--in-redis", "PATTERN=MB or PATTERN=MB:US", "'" + text + "'");
    warprank::TableInStore in_store;
    in_store.store = store_;
    in_store.memory_bytes = *megabytes * 1'000'000;
    in_store.store_timeout = std::chrono::milliseconds(timeout_ms_);
    if (wait_us) {
      in_store.misses = warprank::Misses::wait;
      in_store.longest_wait = std::chrono::microseconds(*wait_us);
    }
    return {parts.pattern, in_store};
  }

  void connect() {
#ifdef WARPRANK_EXAMPLE_REDIS
    warprank::RedisCluster::Options options;
    for (const std::string& node : nodes_) options.nodes.push_back(warprank::redis::Address::from(node));
    options.user = user_;
    options.password = password_;
    const auto redis = std::make_shared<warprank::RedisCluster>(std::move(options));
    store_ = redis;
    redis_counters_ = [redis] {
      const warprank::redis::ClusterCounters& met = redis->counters();
      return RedisCounters{met.connections, met.broken,    met.timeouts,  met.moved,
                           met.asked,       met.refreshes, met.back_offs, met.refused};
    };
#else
    throw warprank::invalid_argument(
        "--in-redis", "a program that was built with hiredis (libhiredis-dev, and WARPRANK_WITH_REDIS not OFF)",
        "one that was built without");
#endif
  }

  std::vector<std::string> placed_, in_redis_, nodes_;
  std::string user_, password_;
  int timeout_ms_ = 1000;
  bool follows_ = false;
  std::shared_ptr<warprank::ParameterStore> store_;
  std::function<RedisCounters()> redis_counters_;
};

}  // namespace kserve
