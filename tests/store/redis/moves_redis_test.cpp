// SPDX-License-Identifier: Apache-2.0

// Nodes that move, leave, close connections, and have names that nobody finds soon.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/store_testing.hpp"
#include "support/wait_until.hpp"
#include "warprank/store/redis_cluster.hpp"

namespace warprank { namespace {

using namespace test_support;
using namespace std::chrono_literals;

/// Acts as a cluster of one master that has all slots and no row, at one address of 127.0.0.0/8 after another: whoever
/// asks at another one is sent on.
class MovingMaster {
 public:
  MovingMaster() : listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listening_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listening_, 64), 0);
    getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~MovingMaster() {
    is_over_ = true;
    thread_.join();
    for (const auto& [socket, client] : clients_) ::close(socket);
    ::close(listening_);
  }

  int port() const { return port_; }
  /// A call's first address is the master's, and stays known.
  RedisCluster::Options options() const {
    RedisCluster::Options options;
    options.nodes = {{"127.0.0.1", port_}};
    options.refresh_interval = 1ms;
    options.breaker.failures = 1;
    options.connect_timeout = options.command_timeout = 60s;  // nothing fails because the machine is slow
    return options;
  }

  void move(int number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    host_ = "127.1." + std::to_string(number / 250) + "." + std::to_string(1 + number % 250);
  }
  /// Closes all connections, which are done when it returns.
  void close_all() {
    const int before = closed_;
    closes_ = true;
    EXPECT_TRUE(wait_until([&] { return closed_ != before; }));
  }
  /// Its former addresses, but for the first, close what comes.
  void leave_former() { leaves_ = true; }
  /// Requests for rows have no answer any more.
  void fall_silent() { is_silent_ = true; }
  /// So many requests for rows are told to come again.
  void refuse(int count) { refused_ = count; }
  int connections() const { return connections_; }

 private:
  struct Client {
    std::string host, received;
  };

  void serve() {
    while (!is_over_) {
      std::vector<pollfd> polled{{listening_, POLLIN, 0}};
      for (const auto& [socket, client] : clients_) polled.push_back({socket, POLLIN, 0});
      poll(polled.data(), polled.size(), 2);
      if (closes_.exchange(false)) {
        for (const auto& [socket, client] : clients_) ::close(socket);
        clients_.clear();
        ++closed_;
        continue;
      }
      if (polled[0].revents != 0) accept_one();
      for (size_t i = 1; i < polled.size(); ++i)
        if (polled[i].revents != 0 && !receive(polled[i].fd)) {
          ::close(polled[i].fd);
          clients_.erase(polled[i].fd);
        }
      connections_ = static_cast<int>(clients_.size());
    }
  }
  void accept_one() {
    const int socket = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) return;
    sockaddr_in address = {};
    socklen_t size = sizeof address;
    getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
    char host[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &address.sin_addr, host, sizeof host);
    clients_[socket].host = host;
  }
  bool receive(int socket) {
    char bytes[4096];
    const ssize_t count = recv(socket, bytes, sizeof bytes, 0);
    if (count <= 0) return false;
    Client& client = clients_[socket];
    if (leaves_ && client.host != "127.0.0.1" && !is_at(client.host)) return false;
    client.received.append(bytes, static_cast<size_t>(count));
    std::string answers;
    for (std::vector<std::string> words; !(words = take_request(client.received)).empty();)
      answers += answer(words, client.host);
    return answers.empty() || send(socket, answers.data(), answers.size(), MSG_NOSIGNAL) > 0;
  }
  /// The words of the first request, or none where it is not whole yet.
  static std::vector<std::string> take_request(std::string& from) {
    size_t at = 0;
    const auto number = [&](char sign) {
      const size_t end = from.find("\r\n", at);
      int value = -1;
      if (end == std::string::npos || from[at] != sign) return -1;
      std::from_chars(from.data() + at + 1, from.data() + end, value);
      at = end + 2;
      return value;
    };
    std::vector<std::string> words;
    for (int left = number('*'); left > 0; --left) {
      const int size = number('$');
      if (size < 0 || from.size() < at + static_cast<size_t>(size) + 2) return {};
      words.push_back(from.substr(at, static_cast<size_t>(size)));
      at += static_cast<size_t>(size) + 2;
    }
    from.erase(0, words.empty() ? 0 : at);
    return words;
  }
  bool is_at(const std::string& host) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return host == host_;
  }
  std::string answer(const std::vector<std::string>& words, const std::string& asked) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::string port = std::to_string(port_);
    if (words[0] == "ASKING") return "+OK\r\n";
    if (words[0] == "CLUSTER")
      return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$" + std::to_string(host_.size()) + "\r\n" + host_ + "\r\n:" + port +
             "\r\n";
    const int slot = redis::slot_of(words[1]);
    if (is_silent_) return "";
    if (asked != host_) return "-MOVED " + std::to_string(slot) + " " + host_ + ":" + port + "\r\n";
    if (words[1].find("migrated") != std::string::npos)
      return "-ASK " + std::to_string(slot) + " 127.2.0.1:" + port + "\r\n";
    if (refused_ > 0 && refused_-- > 0) return "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";
    return "$-1\r\n";
  }

  const int listening_;
  int port_ = 0;
  std::atomic<bool> is_over_{false}, closes_{false}, leaves_{false}, is_silent_{false};
  std::atomic<int> closed_{0}, connections_{0}, refused_{0};
  std::map<int, Client> clients_;  // by socket; the thread's
  std::mutex mutex_;
  std::string host_ = "127.0.0.1";
  std::thread thread_;
};

const StoredTable films{"film", {DType::f32, 2}};

int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

TEST(RedisMoves, ForgetNodesThatHaveLeft) {
  MovingMaster master;
  RedisCluster store(master.options());
  ASSERT_EQ(get(store, films, {1, 2}).count(StoreStatus::absent), 2);
  const int64_t before = open_descriptors();
  for (int i = 0; i < 1000; ++i) {
    master.move(i);
    ASSERT_EQ(get(store, films, {1, 2, 3}).count(StoreStatus::absent), 3) << "move " << i;
    ASSERT_LE(open_descriptors(), before + 20) << "move " << i;  // of both sides
  }
  EXPECT_GE(store.counters().moved, 1000);
  EXPECT_TRUE(wait_until([&] { return master.connections() <= 4; })) << master.connections();
}

TEST(RedisMoves, FindTheClusterByWhatWasGivenWhenAllOthersHaveLeft) {
  MovingMaster master;
  RedisCluster::Options options = master.options();
  options.breaker.longest_pause = 10ms;
  RedisCluster store(options);
  master.leave_former();
  for (int i = 0; i < 3; ++i) {
    master.move(i);
    ASSERT_EQ(get(store, films, {1, 2}).count(StoreStatus::absent), 2) << "move " << i;
  }
}

TEST(RedisMoves, AskAllThatWereGivenAtOnce) {
  MovingMaster master;
  for (int i = 0; i < 6; ++i) {  // which is asked first is drawn
    RedisCluster::Options options = master.options();
    for (int other = 2; other < 10; ++other)
      options.nodes.push_back({"127.0.0." + std::to_string(other), 1});  // where nobody is
    options.refresh_interval = 1h;
    RedisCluster store(options);
    ASSERT_EQ(get(store, films, {1, 2}).count(StoreStatus::absent), 2);
  }
}

TEST(RedisMoves, ASilentNodeIsAtFaultOnAnOldConnectionToo) {
  MovingMaster master;
  RedisCluster::Options options = master.options();
  options.command_timeout = 1s;
  options.breaker.first_pause = options.breaker.longest_pause = 1h;
  std::unique_ptr<RedisCluster> store;
  do {
    store = std::make_unique<RedisCluster>(options);  // anew where the machine was too slow for a first answer
  } while (get(*store, films, {1}).count(StoreStatus::absent) != 1);
  master.fall_silent();
  EXPECT_EQ(get(*store, films, {1}).count(StoreStatus::failed), 1);
  EXPECT_EQ(store->counters().timeouts, 1) << "tried once";
}

TEST(RedisMoves, ARequestOfSeveralThatIsMigratedHasThatForAnAnswer) {
  MovingMaster master;
  redis::Cluster cluster(master.options());
  redis::Requests requests;
  requests.add_for_key("GET", "{a}");
  requests.add_for_key("GET", "{a}migrated");
  std::vector<int> answers(2, 0);
  std::string last;
  ASSERT_TRUE(wait_until([&] {
    answers = {0, 0};
    return cluster
        .run_by_owner(requests, soon(),
                      [&](int64_t i, const redisReply* reply) {
                        ++answers[static_cast<size_t>(i)];
                        last = reply == nullptr ? "" : std::string(redis::text_of(*reply));
                      })
        .empty();
  }));
  EXPECT_THAT(answers, testing::ElementsAre(1, 1)) << "what the first one did is not done again";
  EXPECT_EQ(last.substr(0, 4), "ASK ");
}

TEST(RedisMoves, AConnectionThatTheServerClosedIsNoFaultOfTheNode) {
  MovingMaster master;
  RedisCluster store(master.options());
  ASSERT_EQ(get(store, films, {1}).count(StoreStatus::absent), 1);
  for (int i = 0; i < 5; ++i) {
    master.close_all();
    ASSERT_EQ(get(store, films, {1, 2}).count(StoreStatus::absent), 2) << "the breaker opens at the first failure";
  }
  EXPECT_EQ(store.counters().refused, 0);
  EXPECT_EQ(store.counters().timeouts, 0);
}

TEST(RedisMoves, ComesAgainWhereItIsToldTo) {
  MovingMaster master;
  RedisCluster store(master.options());
  master.refuse(3);
  EXPECT_EQ(get(store, films, {1, 2}).count(StoreStatus::absent), 2);
  EXPECT_GE(store.counters().back_offs, 3);
  EXPECT_EQ(store.counters().broken, 0);
}

/// A name server that answers when it is let.
class SlowNames {
 public:
  explicit SlowNames(int port) : port_(port) {}
  ~SlowNames() { let(); }

  redis::Resolver::Resolve resolve() {
    return [state = state_, port = port_](const redis::Address&) {
      std::unique_lock<std::mutex> lock(state->mutex);
      ++state->asked;
      state->changed.wait(lock, [&] { return state->may; });
      return redis::resolve({"127.0.0.1", port});
    };
  }
  void let() {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->may = true;
    state_->changed.notify_all();
  }
  int asked() const {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->asked;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool may = false;
    int asked = 0;
  };
  const int port_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(RedisNames, ThatAreFoundLateKeepNoCallWaiting) {
  MovingMaster master;
  SlowNames names(master.port());
  RedisCluster::Options options = master.options();
  options.nodes = {{"redis.test", master.port()}};
  options.resolve = names.resolve();
  RedisCluster store(options);
  for (int i = 0; i < 3; ++i)  // return at all: the name is not found before it may be
    EXPECT_EQ(get(store, films, {1, 2}, in(20ms)).count(StoreStatus::failed), 2);
  EXPECT_TRUE(wait_until([&] { return names.asked() > 0; })) << "by a thread that may begin late";
  EXPECT_EQ(names.asked(), 1) << "one question for a name at a time";
  names.let();
  EXPECT_TRUE(wait_until([&] { return get(store, films, {1, 2}, in(1s)).count(StoreStatus::absent) == 2; }));
  EXPECT_EQ(names.asked(), 1) << "the answer is kept";
}

TEST(RedisNames, GoOnWithWhatIsKnownWhileTheyAreAskedForAgain) {
  const auto asked = std::make_shared<std::atomic<int>>(0);  // by a thread that may outlive the resolver
  redis::Resolver resolver([asked](const redis::Address& address) {
    ++*asked;
    return redis::resolve({"127.0.0.1", address.port});
  });
  const redis::Address name{"redis.test", 6379};
  ASSERT_TRUE(wait_until([&] { return resolver.find(name)->is_there(); }));
  resolver.doubt(name);
  EXPECT_TRUE(resolver.find(name)->is_there()) << "nobody waits for what is known, if only in doubt";
  EXPECT_TRUE(wait_until([&] { return *asked == 2; }));
  EXPECT_TRUE(resolver.find({"127.0.0.1", 1})->is_there()) << "needs no name server";
  EXPECT_TRUE(wait_until([&] { return resolver.find(name)->is_there(); }));
  EXPECT_EQ(*asked, 2);
}

}}  // namespace warprank
