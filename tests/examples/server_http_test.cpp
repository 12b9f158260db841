// SPDX-License-Identifier: Apache-2.0
//
// Metrics and the HTTP that they are fetched by.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "../../examples/server/http_server.hpp"
#include "../../examples/server/metrics.hpp"

namespace kserve {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(MetricsText, IsWhatPrometheusReads) {
  MetricsText text;
  text.begin("a_total", "counter", "How many.");
  text.add(3, {{"model", "x\"y\\z\n"}});
  text.begin("b", "gauge", "How much.");
  text.add(0.25);
  Histogram<3> histogram(std::array<double, 3>{0.001, 0.01, 1});
  for (const double value : {0.0005, 0.001, 0.5, 2.0}) histogram.add(value);
  text.begin("c_seconds", "histogram", "How long.");
  text.add(histogram, {{"model", "m"}});
  EXPECT_EQ(text.text(), R"(# HELP a_total How many.
# TYPE a_total counter
a_total{model="x\"y\\z\n"} 3
# HELP b How much.
# TYPE b gauge
b 0.25
# HELP c_seconds How long.
# TYPE c_seconds histogram
c_seconds_bucket{model="m",le="0.001"} 2
c_seconds_bucket{model="m",le="0.01"} 2
c_seconds_bucket{model="m",le="1"} 3
c_seconds_bucket{model="m",le="+Inf"} 4
c_seconds_sum{model="m"} 2.5015
c_seconds_count{model="m"} 4
)");
}

/// A connection of a client.
class Connection {
 public:
  /// `before_it_connects` finds the socket open.
  explicit Connection(int port, const std::function<void()>& before_it_connects = {})
      : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (before_it_connects) before_it_connects();
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Connection() { close(fd_); }
  void write(std::string_view text) const {
    EXPECT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  std::string read_all() const {
    std::string text;
    char bytes[1024];
    for (ssize_t got; (got = recv(fd_, bytes, sizeof bytes, 0)) > 0;) text.append(bytes, static_cast<size_t>(got));
    return text;
  }

 private:
  const int fd_;
};

TEST(HttpServer, AnswersOneRequestOfAConnection) {
  const HttpServer server(0, true, [](std::string_view path) {
    return path == "/large" ? HttpServer::Page{200, std::string(10'000'000, 'x')}
                            : HttpServer::Page{path == "/ok" ? 200 : 503, std::string(path)};
  });
  const auto fetch = [&](std::string_view request) {
    const Connection connection(server.port());
    connection.write(request);
    return connection.read_all();
  };
  EXPECT_THAT(fetch("GET /ok HTTP/1.1\r\nHost: x\r\n\r\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(fetch("GET /ok?x=1 HTTP/1.1\r\n\r\n"), EndsWith("Content-Length: 3\r\n\r\n/ok"));
  EXPECT_THAT(fetch("GET /no HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(fetch("POST /ok HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 Method Not Allowed\r\n"));
  EXPECT_THAT(fetch("GET\r\n\r\n"), StartsWith("HTTP/1.1 405"));
  EXPECT_GT(fetch("GET /large HTTP/1.1\r\n\r\n").size(), 10'000'000u);
}

TEST(HttpServer, IsNotKeptByClientsThatSendNothingOrTooMuch) {
  const HttpServer server(0, true, [](std::string_view) { return HttpServer::Page{200, "ok"}; });
  const auto begin = std::chrono::steady_clock::now();
  const Connection silent(server.port());
  const Connection talkative(server.port());
  talkative.write(std::string(20'000, 'x'));
  const Connection next(server.port());
  next.write("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(next.read_all(), EndsWith("ok"));
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1900));
  EXPECT_EQ(silent.read_all(), "");
}

/// Where the process may open no more files, connections wait, and take no processor time.
TEST(HttpServer, WaitsWhereNoFileIsFree) {
  const HttpServer server(0, true, [](std::string_view) { return HttpServer::Page{200, "ok"}; });
  rlimit usual;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  const Connection connection(server.port(), [&] {
    rlimit few = usual;
    few.rlim_cur = 3;  // the three that every process has, and as many as poll() may be given
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  });
  connection.write("GET / HTTP/1.1\r\n\r\n");
  const std::clock_t begin = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const double used = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_LT(used, 0.2);
  EXPECT_THAT(connection.read_all(), EndsWith("ok"));
}

TEST(HttpServer, EndsWhileAClientIsConnected) {
  Connection* connection = nullptr;
  {
    const HttpServer server(0, true, [](std::string_view) { return HttpServer::Page{200, "ok"}; });
    connection = new Connection(server.port());
  }
  delete connection;
}

TEST(HttpServer, RefusesAPortThatIsTaken) {
  const HttpServer server(0, true, [](std::string_view) { return HttpServer::Page{}; });
  EXPECT_THROW(HttpServer(server.port(), true, {}), warprank::invalid_argument);
}

}  // namespace
}  // namespace kserve
