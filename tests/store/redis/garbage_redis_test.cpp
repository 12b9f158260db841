// SPDX-License-Identifier: Apache-2.0

// Servers that answer what no server of Redis should.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/message_of.hpp"
#include "support/store_testing.hpp"
#include "warprank/store/redis_cluster.hpp"

namespace warprank { namespace {

using namespace test_support;
using namespace std::chrono_literals;
using redis::Redirection;

/// Answers each piece that comes with the same bytes, of which %PORT% is its port; then may close the connection.
class FakeServer {
 public:
  FakeServer(std::string answer, bool closes) : closes_(closes) {
    listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listening_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listening_, 16), 0);
    getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    if (const size_t at = answer.find("%PORT%"); at != std::string::npos) answer.replace(at, 6, std::to_string(port_));
    answer_ = answer;
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() {
    shutdown(listening_, SHUT_RDWR);
    thread_.join();
    close(listening_);
  }
  int port() const { return port_; }

 private:
  void serve() {
    std::vector<std::thread> connections;
    for (int client; (client = accept(listening_, nullptr, nullptr)) >= 0;)
      connections.emplace_back([this, client] {
        char bytes[4096];
        while (recv(client, bytes, sizeof bytes, 0) > 0) {
          if (send(client, answer_.data(), answer_.size(), MSG_NOSIGNAL) < 0 || closes_) break;
        }
        close(client);
      });
    for (std::thread& connection : connections) connection.join();
  }

  const bool closes_;
  std::string answer_;
  int listening_ = -1, port_ = 0;
  std::thread thread_;
};

TEST(RedisGarbage, IsNoRowAndEndsByTheDeadline) {
  const std::string slots = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%PORT%\r\n";
  const std::string answers[] = {
      "garbage\r\n",  // no reply at all
      "$5\r\nab",     // half of one
      "$-7\r\n",      // lengths that are none
      "*99999999999\r\n",
      "+OK\r\n+OK\r\n+OK\r\n+OK\r\n",                         // more than were asked for
      "*0\r\n",                                               // no slots
      "*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n$1\r\nx\r\n:1\r\n",  // slots that there are not
      "*1\r\n*3\r\n:0\r\n:5\r\n+x\r\n",                       // slots of nobody
      "*1\r\n*1\r\n:0\r\n",
      "*1\r\n:0\r\n",
      slots,                            // slots, and for a row the same
      "-MOVED 3 127.0.0.1:%PORT%\r\n",  // round and round
      "-ASK 3 127.0.0.1:%PORT%\r\n",
      "-MOVED 99999 127.0.0.1:1\r\n",
      "-MOVED\r\n",
      "-CLUSTERDOWN Hash slot not served\r\n",
      "-ERR This instance has cluster support disabled\r\n",  // and then an error in place of the row
      ":5\r\n",
      std::string(1, '\0'),
  };
  const StoredTable table{"film", {DType::f32, 2}};
  for (const std::string& answer : answers)
    for (const bool closes : {false, true}) {
      SCOPED_TRACE(answer + (closes ? " and closes" : ""));
      FakeServer server(answer, closes);
      RedisCluster::Options options;
      options.nodes = {{"127.0.0.1", server.port()}};
      options.command_timeout = 20ms;
      RedisCluster store(options);
      const Deadline begin = std::chrono::steady_clock::now();
      for (int i = 0; i < 2; ++i) {
        const Answers got = get(store, table, {1, 2}, in(30ms));
        EXPECT_EQ(got.count(StoreStatus::failed), 2);
        EXPECT_EQ(got.rows, std::vector<unsigned char>(16, 0xEE));
        EXPECT_NE(message_of([&] { store.describe("film", in(30ms)); }), "");
      }
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
    }
}

// Whoever has a long deadline does not wait for it: the breaker opens after some times command_timeout.
TEST(RedisGarbage, OfHalfAReplyIsSilence) {
  FakeServer server("$5\r\nab", false);
  RedisCluster::Options options;
  options.nodes = {{"127.0.0.1", server.port()}};
  options.command_timeout = 20ms;
  RedisCluster store(options);
  const Deadline begin = std::chrono::steady_clock::now();
  EXPECT_EQ(get(store, {"film", {DType::f32, 2}}, {1, 2}, in(10s)).count(StoreStatus::failed), 2);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_GE(store.counters().timeouts, 1);
  EXPECT_GE(store.counters().broken, 3);
}

TEST(RedisGarbage, IsNoRedirection) {
  const redis::Address sender{"10.0.0.1", 6379};
  const auto moved = Redirection::from("MOVED 3999 127.0.0.1:6381", sender);
  ASSERT_TRUE(moved);
  EXPECT_FALSE(moved->is_asking);
  EXPECT_EQ(moved->slot, 3999);
  EXPECT_EQ(moved->address, (redis::Address{"127.0.0.1", 6381}));
  const auto asked = Redirection::from("ASK 0 ::1:6381", sender);  // the last colon is the port's
  ASSERT_TRUE(asked);
  EXPECT_TRUE(asked->is_asking);
  EXPECT_EQ(asked->address, (redis::Address{"::1", 6381}));
  EXPECT_EQ(Redirection::from("MOVED 1 :6381", sender)->address, (redis::Address{"10.0.0.1", 6381}));
  for (const char* text :
       {"", "MOVED", "MOVED ", "MOVED 1", "MOVED 1 ", "MOVED 1 x", "MOVED 16384 x:1", "MOVED -1 x:1", "MOVED 1 x:0",
        "MOVED 1 x:65536", "MOVED 1 x:y", "ASKING 1 x:1", "ERR MOVED 1 x:1", "ASK x:1 1"})
    EXPECT_FALSE(Redirection::from(text, sender)) << text;
}

TEST(RedisNobody, IsThere) {
  RedisCluster::Options options;
  options.nodes = {{"127.0.0.1", 1}, {"name.invalid", 6379}};
  RedisCluster store(options);
  const StoredTable table{"film", {DType::f32, 2}};
  const Deadline begin = std::chrono::steady_clock::now();
  EXPECT_EQ(get(store, table, {1, 2}, in(5s)).count(StoreStatus::failed), 2);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 4s);  // not until the deadline
  EXPECT_THAT(message_of([&] { store.describe("film", in(5s)); }),
              testing::HasSubstr("127.0.0.1:1: Connection refused"));
}

}}  // namespace warprank
