// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One call: requests go to the nodes that have their slots, all nodes at once, and follow redirections until each has
/// its answer or the deadline has passed.

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "warprank/store/parameter_store.hpp"
#include "warprank/store/redis/nodes.hpp"
#include "warprank/store/redis/requests.hpp"

namespace warprank { inline namespace v0 { namespace redis {

/// Gets the reply to request i, once for each; null if none came. Must not throw.
using OnReply = std::function<void(int64_t i, const redisReply* reply)>;

/// A random number in [0, 1).
inline double random_01() {
  thread_local std::minstd_rand random{std::random_device()()};
  return static_cast<double>(random() - std::minstd_rand::min()) /
         (static_cast<double>(std::minstd_rand::max() - std::minstd_rand::min()) + 1);
}

/// The target of a reply "MOVED 3999 127.0.0.1:6381" or "ASK ..."; nothing for other replies.
struct Redirection {
  bool is_asking;
  int slot;
  Address address;

  static std::optional<Redirection> from(std::string_view error, const Address& sender) {
    const bool is_asking = error.substr(0, 4) == "ASK ";
    if (!is_asking && error.substr(0, 6) != "MOVED ") return std::nullopt;
    const size_t number = error.find(' ') + 1, place = error.find(' ', number), colon = error.rfind(':');
    if (place == std::string_view::npos || colon == std::string_view::npos || colon < place) return std::nullopt;
    const int slot = std::atoi(std::string(error.substr(number, place - number)).c_str());
    const int port = std::atoi(std::string(error.substr(colon + 1)).c_str());
    if (slot < 0 || slot >= num_slots || port < 1 || port > 65535) return std::nullopt;
    const std::string host(error.substr(place + 1, colon - place - 1));
    return Redirection{is_asking, slot, {host.empty() ? sender.host : host, port}};
  }
};

/// An exchange's interface to the keeper of the map from slots to nodes.
class SlotKeeper {
 public:
  virtual ~SlotKeeper() = default;
  /// Tells that the map is old.
  virtual void want_refresh() = 0;
  virtual bool is_refresh_due(Deadline now) const = 0;
  /// Asks nodes for the map, unless another thread does.
  virtual void refresh(Deadline deadline) = 0;
};

class Exchange {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  /// `only`: all requests go to this node, and its answer or its failure is final. `is_asking`: it does not have their
  /// slot yet.
  Exchange(Nodes& nodes, SlotKeeper& keeper, const Requests& requests, Deadline deadline, const OnReply& on_reply,
           int only = -1, bool is_asking = false)
      : nodes_(nodes),
        keeper_(keeper),
        requests_(requests),
        deadline_(deadline),
        on_reply_(on_reply),
        only_(only),
        is_asking_(is_asking),
        open_(requests.size()),
        is_done_(static_cast<size_t>(requests.size())),
        redirections_(static_cast<size_t>(requests.size())) {}

  /// Returns the last error, or "".
  std::string run() {
    Time now = Clock::now();
    for (int64_t i = 0; i < requests_.size(); ++i) route(i, now);
    while (open_ > 0) {
      now = Clock::now();
      if (now >= deadline_) break;
      if (!retries_.empty() && now >= retry_at_) {
        retry(now);
        now = Clock::now();
      }
      for (size_t n = 0; n < links_.size(); ++n) pump(links_[n], now);
      if (open_ > 0) wait(now);
    }
    end();
    return trouble_;
  }
  /// Whether the map was wrong for a slot, and so most likely for more slots.
  bool was_moved() const { return was_moved_; }

 private:
  struct Task {
    int64_t request;
    bool is_asking;
  };
  struct Link {
    int number;
    std::shared_ptr<Node> node;
    std::unique_ptr<Connection> connection = nullptr;
    bool is_decided = false, is_refused = false;  // by the breaker
    bool is_reused = false, has_answered = false;
    Time began = {}, since = {};  // the connection's work; its last progress
    std::deque<Task> waiting = {};
    std::deque<int64_t> owed = {};  // replies, in order: to requests; -1: to ASKING
  };
  static constexpr int most_redirections = 16;

  /// Null if the node has left.
  Link* link_of(int number) {
    for (Link& link : links_)
      if (link.number == number) return &link;
    std::shared_ptr<Node> node = nodes_.find(number);
    return node == nullptr ? nullptr : &links_.emplace_back(Link{number, std::move(node)});
  }

  void route(int64_t i, Time now) {
    const int number = only_ >= 0 ? only_ : nodes_.owner(requests_.slot(i));
    if (number >= 0) return route_to(number, {i, is_asking_}, now);
    route_to_nobody(i, now);
  }
  void route_to_nobody(int64_t i, Time now) {
    keeper_.want_refresh();
    if (only_ >= 0) return give_up(i, "the node has left the cluster");
    if (!nodes_.may_any_be_asked(now)) return give_up(i, "no node of the cluster answers, " + nodes_.failure());
    retry_later(i, now);
  }
  void route_to(int number, Task task, Time now) {
    Link* const found = link_of(number);
    if (found == nullptr) return route_to_nobody(task.request, now);
    Link& link = *found;
    if (!link.is_decided) {
      link.is_decided = true;
      link.is_refused = !link.node->breaker.may_try(now);
    }
    if (!link.is_refused) {
      link.waiting.push_back(task);
      return;
    }
    ++nodes_.counters().refused;
    keeper_.want_refresh();
    if (only_ < 0 && !has_refreshed_ && keeper_.is_refresh_due(now)) {  // another node may have its slots by now
      retries_.push_back(task.request);
      retry_at_ = now;
      link.is_decided = false;
    } else {
      give_up(task.request, "not tried again yet, " + link.node->failure());
    }
  }

  void retry_later(int64_t i, Time now) {
    ++nodes_.counters().back_offs;
    if (retries_.empty()) {
      using std::chrono::milliseconds;
      const auto pause = std::min(nodes_.options().longest_back_off, milliseconds(2) * (1 << std::min(turns_++, 10)));
      retry_at_ = now + std::chrono::duration_cast<Clock::duration>(pause * (0.5 + random_01() / 2));
    }
    retries_.push_back(i);
  }
  void retry(Time now) {
    if (only_ < 0 && keeper_.is_refresh_due(now)) {
      has_refreshed_ = true;
      keeper_.refresh(deadline_);
    }
    for (const int64_t i : std::exchange(retries_, {})) route(i, now);
  }

  /// Sends waiting requests, as many as the node may be sent.
  void pump(Link& link, Time now) {
    if (link.waiting.empty()) return;
    if (link.connection == nullptr) {
      std::tie(link.connection, link.is_reused) = link.node->take();
      link.has_answered = false;
      link.began = now;
    }
    if (link.owed.empty()) link.since = now;
    while (!link.waiting.empty() && static_cast<int64_t>(link.owed.size()) < nodes_.options().most_in_flight) {
      const Task task = link.waiting.front();
      link.waiting.pop_front();
      if (task.is_asking) {
        link.connection->send("*1\r\n$6\r\nASKING\r\n");
        link.owed.push_back(-1);
      }
      link.connection->send(requests_.text(task.request));
      link.owed.push_back(task.request);
    }
    if (link.connection->is_connected()) link.connection->handle(POLLOUT);
    if (link.connection->is_broken()) fail(link, link.connection->error(), false, now);
  }

  std::chrono::milliseconds patience(const Link& link) const {
    return link.connection->is_connected() ? nodes_.options().command_timeout : nodes_.options().connect_timeout;
  }

  void wait(Time now) {
    polled_.clear();
    Time until = retries_.empty() ? deadline_ : std::min(deadline_, retry_at_);
    for (Link& link : links_) {
      if (link.owed.empty()) continue;
      polled_.push_back({link.connection->descriptor(), link.connection->events(), 0});
      until = std::min<Time>(until, link.since + patience(link));
    }
    const int64_t ns = std::max<int64_t>(0, std::chrono::nanoseconds(until - now).count());
    const timespec timeout{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
    ppoll(polled_.data(), polled_.size(), &timeout, nullptr);
    now = Clock::now();
    // Redirections may add links, which were not polled.
    for (size_t n = 0, p = 0; p < polled_.size(); ++n) {
      if (links_[n].owed.empty()) continue;
      if (const short events = polled_[p++].revents; events != 0) receive(n, events, now);
      if (!links_[n].owed.empty() && now - links_[n].since >= patience(links_[n]))
        fail(links_[n], "no answer for " + std::to_string(patience(links_[n]).count()) + " ms", true, now);
    }
  }
  void receive(size_t n, short events, Time now) {
    Connection& connection = *links_[n].connection;
    connection.handle(events);
    bool has_progressed = false;
    while (const ReplyPointer reply = connection.next_reply()) {
      has_progressed = true;
      if (links_[n].owed.empty()) break;  // more replies than requests: the next poll finds it broken or silent
      const int64_t i = links_[n].owed.front();
      links_[n].owed.pop_front();
      if (i >= 0) take(i, *reply, links_[n].node->address, now);
    }
    Link& link = links_[n];
    if (has_progressed) {
      link.since = now;
      link.has_answered = true;
      link.node->breaker.succeeded();
    }
    if (connection.is_broken()) fail(link, connection.error(), false, now);
  }

  void take(int64_t i, const redisReply& reply, const Address& from, Time now) {
    if (reply.type != REDIS_REPLY_ERROR || only_ >= 0) return finish(i, &reply);
    const std::string_view error = text_of(reply);
    if (const std::optional<Redirection> to = Redirection::from(error, from)) {
      if (++redirections_[static_cast<size_t>(i)] > most_redirections) return finish(i, &reply);
      const int number = nodes_.number_of(to->address);
      ++(to->is_asking ? nodes_.counters().asked : nodes_.counters().moved);
      if (!to->is_asking) {
        nodes_.set_owner(to->slot, number);
        keeper_.want_refresh();
        was_moved_ = true;
      }
      return route_to(number, {i, to->is_asking}, now);
    }
    for (const char* passing : {"CLUSTERDOWN", "TRYAGAIN", "LOADING", "MASTERDOWN"})
      if (error.substr(0, std::string_view(passing).size()) == passing) {
        trouble_ = from.text() + ": " + std::string(error);
        keeper_.want_refresh();
        return retry_later(i, now);
      }
    finish(i, &reply);
  }

  void finish(int64_t i, const redisReply* reply) {
    is_done_[static_cast<size_t>(i)] = true;
    --open_;
    on_reply_(i, reply);
  }
  void give_up(int64_t i, const std::string& why) {
    trouble_ = why;
    finish(i, nullptr);
  }

  void fail(Link& link, const std::string& why, bool is_timeout, Time now) {
    // A connection that was idle for too long breaks without a fault of the node.
    const bool is_stale = link.is_reused && !link.has_answered && !is_timeout;
    ++nodes_.counters().broken;
    nodes_.counters().timeouts += is_timeout;
    link.node->set_failure(why);
    link.node->drop_idle();
    trouble_ = link.node->failure();
    link.connection = nullptr;
    link.is_decided = false;
    std::deque<int64_t> owed = std::exchange(link.owed, {});
    std::deque<Task> waiting = std::exchange(link.waiting, {});
    for (const Task& task : waiting) owed.push_back(task.request);
    if (!is_stale) {
      link.node->breaker.failed(link.began, now, random_01());
      keeper_.want_refresh();
    }
    for (const int64_t i : owed) {
      if (i < 0) continue;
      if (only_ >= 0 && !is_stale) {
        give_up(i, trouble_);
      } else if (is_stale) {
        retries_.push_back(i);
        retry_at_ = now;
      } else {
        retry_later(i, now);
      }
    }
  }

  void end() {
    const Time now = Clock::now();
    for (Link& link : links_) {
      if (link.connection == nullptr) continue;
      if (link.owed.empty()) {
        link.node->give(std::move(link.connection));
      } else if (!link.has_answered) {
        ++nodes_.counters().broken;
        ++nodes_.counters().timeouts;
        link.node->breaker.failed(link.began, now, random_01());
      }
    }
    if (open_ > 0 && trouble_.empty()) trouble_ = "no answer until the deadline";
    for (int64_t i = 0; open_ > 0; ++i)
      if (!is_done_[static_cast<size_t>(i)]) finish(i, nullptr);
  }

  Nodes& nodes_;
  SlotKeeper& keeper_;
  const Requests& requests_;
  const Deadline deadline_;
  const OnReply& on_reply_;
  const int only_;
  const bool is_asking_;
  int64_t open_;
  std::vector<bool> is_done_;
  std::vector<unsigned char> redirections_;
  std::deque<Link> links_;
  std::vector<pollfd> polled_;
  std::vector<int64_t> retries_;
  Time retry_at_ = {};
  int turns_ = 0;
  bool has_refreshed_ = false, was_moved_ = false;
  std::string trouble_;
};

}}}  // namespace warprank::v0::redis
