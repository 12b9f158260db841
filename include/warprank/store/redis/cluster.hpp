// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "warprank/store/redis/exchange.hpp"

namespace warprank { inline namespace v0 { namespace redis {

/// A Redis Cluster, or a single server. For any threads at once; its deadline bounds the wait of a call.
class Cluster final : public SlotKeeper {
 public:
  explicit Cluster(ClusterOptions options) : nodes_(std::move(options)) {}

  /// Gives `on_reply` the reply to each request, or null, and returns the last error, or "". A request whose connection
  /// breaks is sent again, so it must be repeatable.
  std::string run(const Requests& requests, Deadline deadline, const OnReply& on_reply) {
    Exchange exchange(nodes_, *this, requests, deadline, on_reply);
    const std::string trouble = exchange.run();
    if (exchange.was_moved() && is_refresh_due(std::chrono::steady_clock::now())) refresh(deadline);
    return trouble;
  }

  /// As `run`, but sends all requests in order, on one connection, to the node that has the slot of the first. A
  /// redirection or a missing answer is final; the caller may try again. While the slot is being migrated, the requests
  /// go to the node that the reply to the first one names.
  std::string run_by_owner(const Requests& requests, Deadline deadline, const OnReply& on_reply) {
    if (is_refresh_due(std::chrono::steady_clock::now())) refresh(deadline);
    const int slot = requests.slot(0), owner = nodes_.owner(slot);
    const std::shared_ptr<Node> node = nodes_.find(owner);
    if (node == nullptr) {
      want_refresh();
      for (int64_t i = 0; i < requests.size(); ++i) on_reply(i, nullptr);
      return "nobody knows which node has the slot";
    }
    int asked = -1;
    const OnReply take = [&](int64_t i, const redisReply* reply) {
      if (reply == nullptr || reply->type == REDIS_REPLY_ERROR) want_refresh();
      if (reply != nullptr && reply->type == REDIS_REPLY_ERROR)
        if (const auto to = Redirection::from(text_of(*reply), node->address)) {
          const int number = nodes_.number_of(to->address);
          if (!to->is_asking)
            nodes_.set_owner(slot, number);
          else if (i == 0)
            asked = number;
        }
      if (asked < 0) on_reply(i, reply);
    };
    const std::string trouble = Exchange(nodes_, *this, requests, deadline, take, owner).run();
    if (asked < 0) return trouble;
    ++nodes_.counters().asked;
    return Exchange(nodes_, *this, requests, deadline, on_reply, asked, true).run();
  }

  const ClusterOptions& options() const { return nodes_.options(); }
  const ClusterCounters& counters() { return nodes_.counters(); }

  void want_refresh() override { wants_refresh_ = true; }
  bool is_refresh_due(Deadline now) const override {
    return wants_refresh_ && now.time_since_epoch().count() >= next_refresh_;
  }
  void refresh(Deadline deadline) override {
    const std::unique_lock<std::mutex> lock(refreshing_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    const Deadline now = std::chrono::steady_clock::now();
    next_refresh_ = (now + nodes_.options().refresh_interval).time_since_epoch().count();
    const Nodes::List list = nodes_.list();
    const auto first = std::next(list.begin(), static_cast<int64_t>(random_01() * static_cast<double>(list.size())));
    for (auto node = first; node != list.end() && wants_refresh_; ++node) ask(node->first, *node->second, deadline);
    for (auto node = list.begin(); node != first && wants_refresh_; ++node) ask(node->first, *node->second, deadline);
  }

 private:
  void ask(int number, const Node& node, Deadline deadline) {
    const Deadline now = std::chrono::steady_clock::now();
    if (now >= deadline || node.breaker.is_open(now)) return;
    Requests question;
    question.add(0, "CLUSTER", "SLOTS");
    const OnReply take = [&](int64_t, const redisReply* reply) {
      if (reply == nullptr || !nodes_.take_slots(*reply, node.address)) return;
      wants_refresh_ = false;
      ++nodes_.counters().refreshes;
    };
    Exchange(nodes_, *this, question, std::min(deadline, now + nodes_.options().command_timeout), take, number).run();
  }

  Nodes nodes_;
  std::atomic<bool> wants_refresh_{true};
  std::atomic<Deadline::rep> next_refresh_{0};
  std::mutex refreshing_;
};

}}}  // namespace warprank::v0::redis
