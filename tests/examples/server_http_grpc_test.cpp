// SPDX-License-Identifier: Apache-2.0
//
// HTTP without the protocol: requests of every kind, and clients that take their time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <future>
#include <list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "../../examples/server/http_server.hpp"
#include "examples/http_testing.hpp"
#include "support/wait_until.hpp"

namespace kserve { namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// Tells what has come.
void echo(HttpCall& call) { call.answer(200, call.method + " " + call.path + " " + call.body, "text/plain"); }

std::string fetch(const HttpServer& server, std::string_view request) {
  const Connection connection(server.port());
  connection.write(request);
  return connection.read_answer();
}

TEST(HttpServer, AnswersRequestsOfAConnection) {
  const HttpServer server({}, echo);
  const Connection connection(server.port());
  for (int turn = 0; turn < 3; ++turn) {
    connection.write("GET /ok?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(connection.read_answer(), AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("\r\n\r\nGET /ok ")));
    connection.write("POST /a%20b HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody");
    EXPECT_THAT(connection.read_answer(), EndsWith("\r\n\r\nPOST /a b body"));
    connection.write("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbod\r\n1\r\ny\r\n0\r\n\r\n");
    EXPECT_THAT(connection.read_answer(), EndsWith("\r\n\r\nPOST / body"));
    connection.write("POST /none HTTP/1.1\r\n\r\n");
    EXPECT_THAT(connection.read_answer(), EndsWith("\r\n\r\nPOST /none "));
  }
  connection.write("GET /last HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(connection.read_all(), AllOf(HasSubstr("\r\nConnection: close\r\n"), EndsWith("GET /last ")));
}

TEST(HttpServer, SendsAndTakesWhatIsLarge) {
  const HttpServer server({}, [](HttpCall& call) { call.answer(200, call.body + call.body, "text/plain"); });
  const std::string body(10'000'000, 'x');
  EXPECT_THAT(fetch(server, "POST / HTTP/1.1\r\nContent-Length: 10000000\r\n\r\n" + body), EndsWith(body + body));
  const Connection expects(server.port());
  expects.write("POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  expects.write("ab");
  EXPECT_THAT(expects.read_answer(), AllOf(StartsWith("HTTP/1.1 100 Continue\r\n\r\n"), EndsWith("abab")));
}

TEST(HttpServer, RefusesWhatItCannotRead) {
  HttpOptions options;
  options.limits.body_bytes = 1000;
  const HttpServer server(options, echo);
  const auto refused = [&](std::string_view request, int status, const std::string& message) {
    const Connection connection(server.port());
    connection.write(request);
    EXPECT_THAT(connection.read_all(),
                AllOf(StartsWith("HTTP/1.1 " + std::to_string(status)), EndsWith(R"({"error":")" + message + R"("})")))
        << request.substr(0, 100);
  };
  const std::string no_http = "expected a request of HTTP/1.1";
  refused("GET\r\n\r\n", 400, no_http);
  refused("GET / HTTP/2.0\r\n\r\n", 400, no_http);
  refused("nonsense of a stranger\r\n\r\n", 400, no_http);
  refused("GET / HTTP/1.1\r\nA: " + std::string(9'000, 'x') + "\r\n\r\n", 400, no_http);
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 10'000; ++i) many += "A: b\r\n";
  refused(many + "\r\n", 400, no_http);
  refused("GET /" + std::string(9'000, 'x') + " HTTP/1.1\r\n\r\n", 414, no_http);
  refused("PUT / HTTP/1.1\r\n\r\n", 405, "method: expected GET or POST, got PUT");
  refused("GET / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", 400, "body: expected none of a GET, got one");
  const auto with = [&](const std::string& headers, int status, const std::string& message) {
    refused("POST / HTTP/1.1\r\n" + headers + "\r\n\r\nGET / HTTP/1.1\r\n\r\n", status, message);
  };
  for (const char* length : {"-1", "x", "1e3", "18446744073709551616", "4 4", "+4"})
    with(std::string("Content-Length: ") + length, 400,
         std::string("Content-Length: expected a number of bytes, got '") + length + "'");
  for (const char* length : {"1001", "18446744073709551615"})
    with(std::string("Content-Length: ") + length, 413,
         std::string("body: expected at most 1000 bytes, got ") + length);
  with("Content-Length: 4\r\nContent-Length: 5", 400, "Content-Length: expected one length of the body, got several");
  with("Content-Length: 4\r\nTransfer-Encoding: chunked", 400,
       "Content-Length: expected one length of the body, got several");
  with("Transfer-Encoding: gzip", 501, "Transfer-Encoding: expected chunked or none, got 'gzip'");
  with("Content-Length: 4\r\nContent-Encoding: gzip", 415, "Content-Encoding: expected none, got 'gzip'");
  with("Content-Length: 4\r\nContent-Encoding: br", 415, "Content-Encoding: expected none, got 'br'");
  std::string chunks;
  for (int i = 0; i < 1001; ++i) chunks += "1\r\nx\r\n";
  refused("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, 413,
          "body: expected at most 1000 bytes, got more");
  // Of a range of the answer nothing is made.
  std::string ranges = "GET / HTTP/1.1\r\nRange: bytes=0-";
  for (int i = 0; i < 1'500; ++i) ranges += ",0-9";
  EXPECT_THAT(fetch(server, ranges + "\r\n\r\n"), EndsWith("GET / "));
}

TEST(HttpServer, DoesNotWaitForEverForClientsThatAreSlow) {
  HttpOptions options;
  options.limits.arrives = std::chrono::milliseconds(300);
  options.limits.idle = std::chrono::milliseconds(500);
  const HttpServer server(options, echo);
  const auto begin = std::chrono::steady_clock::now();
  const Connection silent(server.port()), head(server.port()), body(server.port());
  head.write("GET / HT");
  body.write("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbo");
  std::atomic<bool> is_over{false};
  std::thread trickle([&] {
    while (!is_over) {
      head.write("T");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  EXPECT_THAT(body.read_all(), AllOf(StartsWith("HTTP/1.1 408"),
                                     EndsWith(R"({"error":"body: expected all of it in time, got 2 bytes"})")));
  head.read_all();
  EXPECT_EQ(silent.read_all(), "");
  is_over = true;
  trickle.join();
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, std::chrono::milliseconds(450));
  EXPECT_LT(took, std::chrono::seconds(10));
}

TEST(HttpServer, IsNotKeptByClientsThatSendNothingOrTooMuch) {
  HttpOptions options;
  options.threads = 2;
  options.limits.hurried = std::chrono::milliseconds(300);
  const HttpServer server(options, echo);
  std::list<Connection> silent, talkative;
  for (int i = 0; i < 3; ++i) {
    silent.emplace_back(server.port());
    talkative.emplace_back(server.port()).write(std::string(20'000, 'x'));
  }
  const Connection next(server.port());
  next.write("GET /next HTTP/1.1\r\n\r\n");
  EXPECT_THAT(next.read_answer(), EndsWith("GET /next "));
  for (const Connection& connection : silent) EXPECT_EQ(connection.read_all(), "");
  next.write("GET /again HTTP/1.1\r\n\r\n");  // which nobody waits for any more
  EXPECT_THAT(next.read_answer(), EndsWith("GET /again "));
}

/// A call under way is not hurried, and a connection that goes on gives way to one that waits.
TEST(HttpServer, GivesConnectionsTurnsWhereThreadsAreFew) {
  HttpOptions options;
  options.threads = 1;
  options.limits.hurried = std::chrono::milliseconds(100);
  std::promise<void> may_end;
  const std::shared_future<void> end = may_end.get_future().share();
  const HttpServer server(options, [end](HttpCall& call) {
    if (call.path == "/slow") end.wait();
    echo(call);
  });
  const Connection first(server.port());
  first.write("GET /slow HTTP/1.1\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Connection second(server.port());
  second.write("GET /second HTTP/1.1\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  may_end.set_value();
  EXPECT_THAT(first.read_all(), EndsWith("GET /slow "));
  EXPECT_THAT(second.read_answer(), EndsWith("GET /second "));
}

TEST(HttpServer, TellsWhenAClientHasGone) {
  std::atomic<bool> has_begun{false}, was_gone{false};
  const HttpServer server({}, [&](HttpCall& call) {
    has_begun = true;
    was_gone = warprank::test_support::wait_until([&] { return call.is_gone(); });
  });
  {
    const Connection connection(server.port());
    connection.write("GET / HTTP/1.1\r\n\r\n");
    ASSERT_TRUE(warprank::test_support::wait_until([&] { return has_begun.load(); }));
    EXPECT_FALSE(was_gone);
  }
  EXPECT_TRUE(warprank::test_support::wait_until([&] { return was_gone.load(); }));
}

TEST(HttpServer, AnswersForAHandlerThatThrows) {
  const HttpServer server({}, [](HttpCall&) { throw std::runtime_error("no \"memory\""); });
  EXPECT_THAT(fetch(server, "GET / HTTP/1.1\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 500"), EndsWith(R"({"error":"no \"memory\""})")));
}

/// Where the process may open no more files, connections wait, and take no processor time.
TEST(HttpServer, WaitsWhereNoFileIsFree) {
  const HttpServer server({}, echo);
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
  EXPECT_THAT(connection.read_answer(), EndsWith("GET / "));
}

TEST(HttpServer, EndsWhileClientsAreConnected) {
  std::list<Connection> connections;
  const auto begin = std::chrono::steady_clock::now();
  {
    HttpOptions options;
    options.threads = 2;
    const HttpServer server(options, echo);
    for (int i = 0; i < 5; ++i) connections.emplace_back(server.port());
    connections.front().write("GET / HT");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(HttpServer, RefusesAPortThatIsTaken) {
  const HttpServer server({}, echo);
  HttpOptions same;
  same.port = server.port();
  EXPECT_THROW(HttpServer(same, echo), warprank::invalid_argument);
}

}}  // namespace kserve
