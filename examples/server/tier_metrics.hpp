// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What became of look-ups in tables that are not all on the device, or not all in memory (docs/TIERS.md).

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "metrics.hpp"
#include "warprank/engine/table_options.hpp"
#include "warprank/store/change_follower.hpp"

namespace kserve {

/// RedisCluster::counters, which programs without hiredis do not have.
struct RedisCounters {
  int64_t connections = 0, broken = 0, timeouts = 0, moved = 0, asked = 0, refreshes = 0, back_offs = 0, refused = 0;
};

/// By table: of the rows that tables in stores have in memory, of those that cached tables have on a GPU, and of what
/// follows changes. And of Redis, where tables have rows there.
struct TierCounters {
  std::map<std::string, warprank::StoreCounters> stores;
  std::map<std::string, warprank::CacheCounters> caches;
  std::map<std::string, warprank::FollowCounters> followed;
  std::optional<RedisCounters> redis = {};

  /// Nothing where there are no such tables.
  void write(MetricsText& to, const std::string& model) const {
    const auto add = [&](const std::string& table, const char* label, const char* is, int64_t value,
                         const char* tier = nullptr) {
      MetricsText::Labels labels = {{"model", model}, {"table", table}};
      if (tier != nullptr) labels.emplace_back("tier", tier);
      if (label != nullptr) labels.emplace_back(label, is);
      to.add(static_cast<double>(value), labels);
    };
    if (!stores.empty() || !caches.empty()) write_tiers(to, add);
    if (!stores.empty()) write_stores(to, add);
    if (!followed.empty()) write_followed(to, add);
    if (redis) write_redis(to, model);
  }

 private:
  template <class Add>
  void write_tiers(MetricsText& to, const Add& add) const {
    to.begin("warprank_tier_lookups_total", "counter", "Look-ups by whether the tier had the row.");
    for (const auto& [table, met] : caches) {
      add(table, "result", "hit", met.hits, "device");
      add(table, "result", "miss", met.misses, "device");
    }
    for (const auto& [table, met] : stores) {
      add(table, "result", "hit", met.hits, "memory");
      add(table, "result", "miss", met.misses, "memory");
    }
    to.begin("warprank_tier_rows_total", "counter", "Rows that came to a tier, and that gave way to others.");
    for (const auto& [table, met] : caches) {
      add(table, "change", "admitted", met.admitted, "device");
      add(table, "change", "evicted", met.evicted, "device");
    }
    for (const auto& [table, met] : stores) {
      add(table, "change", "admitted", met.fetched, "memory");
      add(table, "change", "evicted", met.evicted, "memory");
    }
    to.begin("warprank_tier_dropped_total", "counter",
             "Misses that found no room in a queue, and are asked for again.");
    for (const auto& [table, met] : caches) add(table, nullptr, nullptr, met.dropped, "device");
    for (const auto& [table, met] : stores) add(table, nullptr, nullptr, met.dropped, "memory");
  }

  template <class Add>
  void write_stores(MetricsText& to, const Add& add) const {
    to.begin("warprank_store_keys_total", "counter", "Keys that a store was asked for, by its answer.");
    for (const auto& [table, met] : stores) {
      add(table, "answer", "row", met.fetched);
      add(table, "answer", "absent", met.absent);
      add(table, "answer", "damaged", met.damaged);
      add(table, "answer", "failed", met.failed);
    }
    to.begin("warprank_store_late_total", "counter", "Batches that waited in vain for some of their keys.");
    for (const auto& [table, met] : stores) add(table, nullptr, nullptr, met.late);
    to.begin("warprank_store_rows", "gauge", "Rows in memory of a table in a store.");
    for (const auto& [table, met] : stores) add(table, nullptr, nullptr, met.rows);
  }

  template <class Add>
  void write_followed(MetricsText& to, const Add& add) const {
    to.begin("warprank_followed_keys_total", "counter", "Keys that others have changed, by what became of them.");
    for (const auto& [table, met] : followed) {
      add(table, "change", "updated", met.changes.updated);
      add(table, "change", "inserted", met.changes.inserted);
      add(table, "change", "erased", met.changes.erased);
      add(table, "change", "absent", met.changes.absent);
      add(table, "change", "full", met.changes.full);
      add(table, "change", "failed", met.changes.failed);
    }
    to.begin("warprank_followed_entries_total", "counter", "Entries of changes, by what became of them.");
    for (const auto& [table, met] : followed) {
      add(table, "result", "applied", met.entries);
      add(table, "result", "refused", met.refused);
      add(table, "result", "garbage", met.garbage);
    }
    to.begin("warprank_followed_lost_total", "counter", "Times that changes were missing.");
    for (const auto& [table, met] : followed) add(table, nullptr, nullptr, met.lost);
    to.begin("warprank_followed_retries_total", "counter", "Times that changes were not read or not applied, by who.");
    for (const auto& [table, met] : followed) {
      add(table, "by", "store", met.unanswered);
      add(table, "by", "tables", met.failed);
    }
  }

  void write_redis(MetricsText& to, const std::string& model) const {
    const auto add = [&](const char* label, const char* is, int64_t value) {
      to.add(static_cast<double>(value), {{"model", model}, {label, is}});
    };
    to.begin("warprank_redis_connections_total", "counter", "Connections to Redis, by what became of them.");
    add("event", "opened", redis->connections);
    add("event", "broken", redis->broken);
    to.begin("warprank_redis_timeouts_total", "counter", "Broken connections whose node was silent.");
    to.add(static_cast<double>(redis->timeouts), {{"model", model}});
    to.begin("warprank_redis_requests_total", "counter",
             "Requests that waited to be tried again, and that were not sent to a node which had failed.");
    add("result", "retried", redis->back_offs);
    add("result", "refused", redis->refused);
    to.begin("warprank_redis_slots_total", "counter",
             "Requests that were sent to another node, and answers to who has which slots.");
    add("event", "moved", redis->moved);
    add("event", "asked", redis->asked);
    add("event", "refreshed", redis->refreshes);
  }
};

}  // namespace kserve
