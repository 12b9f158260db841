// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Changes of a table as a Stream of Redis, in one slot:
///
///     {warprank:changes:film}         the stream; in each entry, `after` is the id of the entry before, and `changes`
///                                     has the format of store/row_changes.hpp
///     {warprank:changes:film}:last    the id of the last entry
///     {warprank:changes:film}:by:ID   how many entries the publisher ID has added
///
/// One script writes all three. So an entry that is sent again, since the first answer was lost, is not added again;
/// and a reader sees that entries are missing, whether they were cut off or lost with a master.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "warprank/store/parameter_store.hpp"
#include "warprank/store/redis/cluster.hpp"
#include "warprank/store/row_changes.hpp"

namespace warprank { inline namespace v0 { namespace redis {

/// The id of an entry: milliseconds, and a number within the millisecond.
struct EntryId {
  uint64_t time = 0, number = 0;

  static std::optional<EntryId> from(std::string_view text) {
    EntryId id;
    const size_t dash = text.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    for (const auto& [part, to] : {std::pair{text.substr(0, dash), &id.time}, {text.substr(dash + 1), &id.number}}) {
      if (part.empty() || part.size() > 19 || part.find_first_not_of("0123456789") != std::string_view::npos)
        return std::nullopt;
      for (const char digit : part) *to = *to * 10 + static_cast<uint64_t>(digit - '0');
    }
    return id;
  }
  std::string text() const { return std::to_string(time) + "-" + std::to_string(number); }
  bool operator==(const EntryId& other) const { return time == other.time && number == other.number; }
  bool operator<(const EntryId& other) const { return std::tie(time, number) < std::tie(other.time, other.number); }
};

inline std::string stream_key(const std::string& table) { return "{warprank:changes:" + table + "}"; }
inline std::string last_entry_key(const std::string& table) { return stream_key(table) + ":last"; }

class StreamPublisher final : public ChangePublisher {
 public:
  StreamPublisher(Cluster& cluster, StoredTable table) : cluster_(cluster), table_(std::move(table)) {
    std::random_device random;
    char id[17];
    std::snprintf(id, sizeof id, "%08x%08x", random(), random());
    counter_key_ = stream_key(table_.name) + ":by:" + id;
  }

  bool publish(const RowChanges& changes, Deadline deadline) override {
    check_row_changes(table_, changes);
    const int64_t most = std::max<int64_t>(1, most_bytes / (8 + table_.rows.row_bytes()));
    each_part(table_.rows, changes, most, [&](const RowChanges& part) {
      const auto keys = static_cast<int64_t>(part.keys.size() + part.erased.size());
      entries_.push_back({++last_number_, keys, write_row_changes(table_.rows, part)});
      unsent_ += keys;
    });
    const ChangeOptions& options = cluster_.options().changes;
    for (int turn = 0; !entries_.empty(); ++turn) {
      if (send(entries_.front(), options, deadline)) {
        unsent_ -= entries_.front().keys;
        entries_.pop_front();
        turn = 0;
        continue;
      }
      using std::chrono::milliseconds;
      const auto pause = std::min(cluster_.options().longest_back_off, milliseconds(2) * (1 << std::min(turn, 10)));
      const auto now = std::chrono::steady_clock::now();
      if (now + pause >= deadline) return false;
      std::this_thread::sleep_until(now + pause);
    }
    return true;
  }
  int64_t unsent() const override { return unsent_; }
  const std::string& trouble() const override { return trouble_; }

 private:
  static constexpr int64_t most_bytes = 256 << 10;  // of an entry
  struct Entry {
    int64_t number, keys;
    std::string changes;
  };
  /// Writes in any case, since WAIT waits for the writes of its own connection.
  static constexpr const char* script = R"(
local last = redis.call('GET', KEYS[3])
if last and tonumber(last) >= tonumber(ARGV[1]) then
  redis.call('SET', KEYS[3], last, 'EX', ARGV[3])
  return 0
end
local before = redis.call('GET', KEYS[2]) or '0-0'
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'after', before, 'changes', ARGV[4])
redis.call('SET', KEYS[2], id)
redis.call('SET', KEYS[3], ARGV[1], 'EX', ARGV[3])
return 1)";

  bool send(const Entry& entry, const ChangeOptions& options, Deadline deadline) {
    const std::string stream = stream_key(table_.name);
    Requests requests;
    requests.add(slot_of(stream), "EVAL", script, "3", stream, last_entry_key(table_.name), counter_key_,
                 std::to_string(entry.number), std::to_string(options.most_entries),
                 std::to_string(options.remember_publishers.count()), entry.changes);
    if (options.replicas > 0) {  // for less time than command_timeout, and than the rest of the call
      using std::chrono::milliseconds;
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
      const auto most = std::min(left, cluster_.options().command_timeout) / 2;
      requests.add(slot_of(stream), "WAIT", std::to_string(options.replicas),
                   std::to_string(std::max<int64_t>(1, most.count())));
    }
    bool is_added = false;
    int64_t replicas = 0;
    std::string error;
    const std::string trouble = cluster_.run_by_owner(requests, deadline, [&](int64_t i, const redisReply* reply) {
      if (reply != nullptr && reply->type == REDIS_REPLY_INTEGER)
        i == 0 ? void(is_added = true) : void(replicas = reply->integer);
      else if (reply != nullptr && error.empty())
        error = std::string(text_of(*reply));
    });
    if (is_added && replicas >= options.replicas) return true;
    trouble_ = !trouble.empty() ? trouble : !error.empty() ? error : std::to_string(replicas) + " replicas have it";
    return false;
  }

  Cluster& cluster_;
  const StoredTable table_;
  std::string counter_key_, trouble_;
  std::deque<Entry> entries_;  // that may not be in the stream yet
  int64_t last_number_ = 0, unsent_ = 0;
};

class StreamReader final : public ChangeReader {
 public:
  StreamReader(Cluster& cluster, std::vector<FollowedTable> tables) : cluster_(cluster) {
    for (FollowedTable& followed : tables) {
      const std::optional<EntryId> id = EntryId::from(followed.position);
      if (!id)
        throw invalid_argument("changes of table '" + followed.table.name + "': position",
                               "one as end_of_changes gives it", "'" + followed.position.substr(0, 80) + "'");
      followed_.push_back({std::move(followed.table), *id, *id});
    }
  }

  std::vector<ReadChanges> read(Deadline deadline) override {
    Requests requests;
    for (const Followed& one : followed_) {
      const std::string stream = stream_key(one.table.name);
      requests.add_for_key("GET", last_entry_key(one.table.name));  // first: so the entry that it names can be read
      requests.add(slot_of(stream), "XREAD", "COUNT", std::to_string(most_entries), "STREAMS", stream, one.read.text());
    }
    std::vector<ReadChanges> results(followed_.size());
    std::vector<std::optional<EntryId>> last(followed_.size());
    cluster_.run(requests, deadline, [&](int64_t i, const redisReply* reply) {
      const auto f = static_cast<size_t>(i / 2);
      if (reply == nullptr) return;
      if (i % 2 == 1)
        results[f].is_answer = take(followed_[f], *reply, results[f]);
      else if (reply->type == REDIS_REPLY_NIL)
        last[f] = EntryId();
      else if (reply->type == REDIS_REPLY_STRING)
        last[f] = EntryId::from(text_of(*reply));
    });
    for (size_t f = 0; f < followed_.size(); ++f) {
      if (results[f].is_answer && last[f]) find_losses(followed_[f], *last[f], results[f]);
      results[f].position = followed_[f].applied.text();
    }
    return results;
  }

 private:
  static constexpr size_t most_entries = 64;  // of a call
  /// For so long a former master, which was stopped and does not know its successor yet, may answer from the past.
  static constexpr std::chrono::seconds doubt{1};

  struct Followed {
    StoredTable table;
    EntryId applied;  ///< the last entry with changes of the table
    EntryId read;     ///< the last one of any kind
    bool is_in_doubt = false;
    Deadline in_doubt_since = {};
  };

  /// Takes the entries of a reply to XREAD; false if it is no such reply.
  static bool take(Followed& followed, const redisReply& reply, ReadChanges& result) {
    if (reply.type == REDIS_REPLY_NIL) return true;
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements != 1) return false;
    const redisReply& stream = *reply.element[0];
    if (stream.type != REDIS_REPLY_ARRAY || stream.elements != 2 || stream.element[1]->type != REDIS_REPLY_ARRAY)
      return false;
    const redisReply& entries = *stream.element[1];
    for (size_t e = 0; e < entries.elements; ++e) {
      const redisReply& entry = *entries.element[e];
      if (entry.type != REDIS_REPLY_ARRAY || entry.elements != 2) return false;
      const std::optional<EntryId> id = EntryId::from(text_of(*entry.element[0]));
      if (!id || !(followed.read < *id)) return false;
      followed.read = *id;
      take_entry(followed, *entry.element[1], result);
    }
    result.has_more = entries.elements == most_entries;
    return true;
  }
  static void take_entry(Followed& followed, const redisReply& fields, ReadChanges& result) {
    const auto is = [&](size_t i, std::string_view name) {
      return fields.element[i]->type == REDIS_REPLY_STRING && text_of(*fields.element[i]) == name;
    };
    RowChanges changes;
    bool is_good = fields.type == REDIS_REPLY_ARRAY && fields.elements == 4 && is(0, "after") && is(2, "changes");
    if (is_good) {
      const std::string_view bytes = text_of(*fields.element[3]);
      is_good = read_row_changes(
          followed.table.rows,
          {reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int64_t>(bytes.size())}, changes);
    }
    if (!is_good) {
      ++result.garbage;
      return;
    }
    const bool follows = text_of(*fields.element[1]) == followed.applied.text();
    result.has_lost = result.has_lost || !follows;
    followed.applied = followed.read;
    followed.is_in_doubt = false;
    result.changes.push_back(std::move(changes));
  }

  /// `last` is the id of the last entry, as it was before the entries were read.
  static void find_losses(Followed& followed, EntryId last, ReadChanges& result) {
    if (result.has_more) return;
    const bool is_gone = followed.applied < last;
    const bool is_past = last < followed.applied && result.changes.empty();
    if (!is_gone && !is_past) {
      followed.is_in_doubt = false;
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (!followed.is_in_doubt) followed.in_doubt_since = now;
    followed.is_in_doubt = true;
    if (now - followed.in_doubt_since < doubt) return;
    followed.is_in_doubt = false;
    result.has_lost = true;
    followed.applied = last;
    followed.read = is_past ? last : std::max(followed.read, last);
  }

  Cluster& cluster_;
  std::vector<Followed> followed_;
};

}}}  // namespace warprank::v0::redis
