// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The known nodes of a Redis Cluster, their connections, and the map from slots to nodes.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "warprank/store/parameter_store.hpp"
#include "warprank/store/redis/circuit_breaker.hpp"
#include "warprank/store/redis/connection.hpp"
#include "warprank/store/redis/requests.hpp"
#include "warprank/store/redis/resolver.hpp"

namespace warprank { inline namespace v0 { namespace redis {

/// Options of published changes.
struct ChangeOptions {
  /// Replicas that must have a change, too: with 1, no change is lost with a master whose replica takes over.
  int replicas = 0;
  int64_t most_entries = 100000;  ///< kept entries of a table, of up to 256 KB each; a few more may be kept
  /// For so long after a publisher's last change, an entry that it sends again is not added again.
  std::chrono::seconds remember_publishers{86400};
};

struct ClusterOptions {
  std::vector<Address> nodes = {};       ///< some nodes of the cluster, which tell the others
  std::string user = {}, password = {};  ///< empty: no AUTH
  std::chrono::milliseconds connect_timeout{500};
  /// A node that has completed no reply for so long, though it owes some, has failed.
  std::chrono::milliseconds command_timeout{500};
  std::chrono::milliseconds refresh_interval{100};  ///< at least, between questions for the map of slots
  std::chrono::milliseconds longest_back_off{100};  ///< of a call, before it tries again
  CircuitBreaker::Options breaker = {};             ///< of each node
  int64_t most_in_flight = 1024;                    ///< unanswered commands of a call, for each node
  ChangeOptions changes = {};
  Resolver::Resolve resolve = nullptr;  ///< resolves names of hosts, on a thread of its own; null: by the system
};

/// Never reset.
struct ClusterCounters {
  std::atomic<int64_t> moved{0}, asked{0};  ///< redirections
  std::atomic<int64_t> back_offs{0};        ///< requests that waited to be tried again
  std::atomic<int64_t> broken{0};           ///< connections that failed, and
  std::atomic<int64_t> timeouts{0};         ///< those whose node was silent, if only until a call's deadline
  std::atomic<int64_t> refused{0};          ///< requests that were not tried, since the node's breaker was open
  std::atomic<int64_t> connections{0};      ///< that were opened
  std::atomic<int64_t> refreshes{0};        ///< answers with the map of slots
};

/// A node of the cluster. Each of its connections is lent to one call at a time: a thread has at most one, and there
/// are as many as threads have called at once.
class Node {
 public:
  Node(Address address, const ClusterOptions& options, ClusterCounters& counters, Resolver& resolver)
      : address(std::move(address)), breaker(options.breaker), counters_(counters), resolver_(resolver) {
    Requests hello;
    if (!options.password.empty()) {
      if (options.user.empty())
        hello.add(0, "AUTH", options.password);
      else
        hello.add(0, "AUTH", options.user, options.password);
    }
    hello_ = hello.text();
    hello_replies_ = static_cast<int>(hello.size());
  }

  /// A connection, and whether it has served before.
  std::pair<std::unique_ptr<Connection>, bool> take() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        auto connection = std::move(idle_.back());
        idle_.pop_back();
        return {std::move(connection), true};
      }
    }
    ++counters_.connections;
    return {std::make_unique<Connection>(resolver_.find(address), hello_, hello_replies_), false};
  }
  /// Takes back a connection that owes no replies.
  void give(std::unique_ptr<Connection> connection) {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(connection));
  }
  /// Drops idle connections, which are most likely as broken as the one that failed, and doubts the addresses of the
  /// node's name.
  void drop_idle() {
    resolver_.doubt(address);
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.clear();
  }

  /// Keeps the text of the last failure.
  void set_failure(const std::string& failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = failure;
  }
  std::string failure() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return address.text() + (failure_.empty() ? "" : ": " + failure_);
  }

  const Address address;
  CircuitBreaker breaker;

 private:
  ClusterCounters& counters_;
  Resolver& resolver_;
  std::string hello_;
  int hello_replies_ = 0;
  std::mutex mutex_;  // guards the members below
  std::vector<std::unique_ptr<Connection>> idle_;
  std::string failure_;
};

/// The nodes by their numbers. The number of a node that has left is not given again. For any threads at once.
class Nodes {
 public:
  using List = std::map<int, std::shared_ptr<Node>>;

  explicit Nodes(ClusterOptions options) : options_(std::move(options)), resolver_(options_.resolve) {
    for (std::atomic<int>& owner : owners_) owner = -1;
    for (const Address& address : options_.nodes) number_of(address);
  }

  const ClusterOptions& options() const { return options_; }
  ClusterCounters& counters() { return counters_; }

  int number_of(const Address& address) {
    constexpr size_t most_nodes = 2048;  // from redirections, if no node tells of the whole cluster
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [number, node] : nodes_)
      if (node->address == address) return number;
    if (nodes_.size() >= most_nodes) keep_only({});
    const int number = next_number_++;
    nodes_.emplace(number, std::make_shared<Node>(address, options_, counters_, resolver_));
    return number;
  }
  List list() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return nodes_;
  }
  /// Null if it has left.
  std::shared_ptr<Node> find(int number) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto node = nodes_.find(number);
    return node == nodes_.end() ? nullptr : node->second;
  }
  bool may_any_be_asked(Deadline now) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::any_of(nodes_.begin(), nodes_.end(),
                       [&](const auto& one) { return !one.second->breaker.is_open(now); });
  }
  /// The last failure of one of the nodes.
  std::string failure() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return nodes_.begin()->second->failure();
  }

  /// The number of the node that has the slot; -1: unknown.
  int owner(int slot) const { return owners_[static_cast<size_t>(slot)].load(std::memory_order_relaxed); }
  void set_owner(int slot, int node) { owners_[static_cast<size_t>(slot)].store(node, std::memory_order_relaxed); }

  /// Takes a reply of `from` to CLUSTER SLOTS, and forgets nodes that neither the reply nor the options name. Returns
  /// false, and changes no slot, if it is no such reply. A server that is no cluster has all slots.
  bool take_slots(const redisReply& reply, const Address& from) {
    if (reply.type == REDIS_REPLY_ERROR && text_of(reply).find("cluster support disabled") != std::string_view::npos) {
      const int node = number_of(from);
      for (int slot = 0; slot < num_slots; ++slot) set_owner(slot, node);
      return true;
    }
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements == 0) return false;
    struct Range {
      int first, last, node;
    };
    std::vector<Range> ranges;
    std::set<int> named;
    for (size_t i = 0; i < reply.elements; ++i) {
      const redisReply& range = *reply.element[i];
      if (range.type != REDIS_REPLY_ARRAY || range.elements < 3) return false;
      const long long first = range.element[0]->integer, last = range.element[1]->integer;
      if (first < 0 || last < first || last >= num_slots) return false;
      for (size_t n = 2; n < range.elements; ++n) {  // the master, then its replicas, which can be asked, too
        const redisReply& node = *range.element[n];
        if (node.type != REDIS_REPLY_ARRAY || node.elements < 2) return false;
        const std::string host(text_of(*node.element[0]));
        const int number = number_of({host.empty() ? from.host : host, static_cast<int>(node.element[1]->integer)});
        named.insert(number);
        if (n == 2) ranges.push_back({static_cast<int>(first), static_cast<int>(last), number});
      }
    }
    std::array<int, num_slots> owners;
    owners.fill(-1);
    for (const Range& range : ranges)
      for (int slot = range.first; slot <= range.last; ++slot) owners[static_cast<size_t>(slot)] = range.node;
    for (int slot = 0; slot < num_slots; ++slot) set_owner(slot, owners[static_cast<size_t>(slot)]);
    const std::lock_guard<std::mutex> lock(mutex_);
    keep_only(std::move(named));
    return true;
  }

 private:
  /// With the mutex held: keeps these nodes, the nodes of the options, and nodes that have slots. Connections of other
  /// nodes are closed with the last call that has them.
  void keep_only(std::set<int> kept) {
    for (const std::atomic<int>& owner : owners_) kept.insert(owner.load(std::memory_order_relaxed));
    for (auto node = nodes_.begin(); node != nodes_.end();) {
      const std::vector<Address>& given = options_.nodes;
      const bool is_given = std::find(given.begin(), given.end(), node->second->address) != given.end();
      node = is_given || kept.count(node->first) != 0 ? std::next(node) : nodes_.erase(node);
    }
  }

  const ClusterOptions options_;
  Resolver resolver_;
  ClusterCounters counters_;
  std::array<std::atomic<int>, num_slots> owners_;
  mutable std::mutex mutex_;  // guards the members below
  List nodes_;
  int next_number_ = 0;
};

}}}  // namespace warprank::v0::redis
