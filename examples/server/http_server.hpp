// SPDX-License-Identifier: Apache-2.0
#pragma once

/// HTTP/1.1 by cpp-httplib, which parses requests and writes answers. Connections are accepted and timed here: its own
/// loop ends at some errors, and lets a client that sends a byte now and then keep a thread.

#include <arpa/inet.h>
#include <httplib.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "http_connection.hpp"
#include "http_options.hpp"
#include "warprank/core/error.hpp"

namespace kserve {

/// A request whose head and body have come.
struct HttpCall {
  std::string method;  ///< GET or POST
  std::string path;
  const httplib::Request& request;  ///< its headers
  std::string body;
  httplib::Response& response;
  std::function<bool()> is_gone;  ///< whether the client has gone meanwhile

  void answer(int status, const std::string& text, const char* type) const {
    response.status = status;
    response.set_content(text, type);
  }
  void answer(const nlohmann::ordered_json& json, int status = 200) const {
    // Messages may have bytes of a client's names that are not UTF-8.
    answer(status, json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), "application/json");
  }
  void refuse(int status, const std::string& message) const { answer({{"error", message}}, status); }
};

class HttpServer {
 public:
  using Handler = std::function<void(HttpCall&)>;

  /// Listens. `handler` is called by several threads at once. Throws warprank::invalid_argument.
  HttpServer(const HttpOptions& options, Handler handler) : options_(options), handler_(std::move(handler)) {
    const int on = 1;
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(options.is_local ? INADDR_LOOPBACK : INADDR_ANY);
    address.sin_port = htons(static_cast<uint16_t>(options.port));
    socklen_t size = sizeof address;
    if (listener_.fd < 0 || stops_.fd() < 0 || crowded_.fd() < 0 ||
        setsockopt(listener_.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(listener_.fd, reinterpret_cast<const sockaddr*>(&address), size) != 0 || listen(listener_.fd, 1024) != 0 ||
        getsockname(listener_.fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw warprank::invalid_argument("HTTP port", "one that is free to listen on", std::to_string(options.port));
    port_ = ntohs(address.sin_port);
    parser_.set_keep_alive_timeout(options.limits.idle.count() / 1000).set_keep_alive_max_count(1'000'000);
    parser_.set_pre_routing_handler([this](const auto& request, auto& response) { return head(request, response); });
    parser_.Post(
        "/", [this](const auto& request, auto& response, const auto& reader) { with_body(request, response, reader); });
    parser_.set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (response.body.empty())
        response.set_content(R"({"error":"expected a request of HTTP/1.1"})", "application/json");
    });
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~HttpServer() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stops_.set();
    }
    changed_.notify_all();
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  using Handled = httplib::Server::HandlerResponse;

  struct Parser final : httplib::Server {
    /// Reads a request and writes its answer; false where there is none, or cannot be another. `is_last` as the client
    /// says, too.
    template <class Setup>
    bool answer(HttpConnection& connection, bool& is_last, const Setup& setup) {
      return answer(*this, connection, is_last, setup, 0);
    }

   private:
    template <class Self, class Setup>
    static auto answer(Self& self, HttpConnection& connection, bool& is_last, const Setup& setup, int)
        -> decltype(self.process_request(connection, is_last, is_last, setup)) {
      return self.process_request(connection, is_last, is_last, setup);
    }
    /// From cpp-httplib 0.18 on it is told both addresses, too, which nothing here asks for.
    template <class Self, class Setup>
    static auto answer(Self& self, HttpConnection& connection, bool& is_last, const Setup& setup, long)
        -> decltype(self.process_request(connection, "", 0, "", 0, is_last, is_last, setup)) {
      return self.process_request(connection, "", 0, "", 0, is_last, is_last, setup);
    }
  };
  /// What is under way on a thread: cpp-httplib hands on nothing of ours.
  struct Current {
    HttpConnection& connection;
    std::string path = {};
    bool must_close = false;
  };

  void accept_all() {
    pollfd files[] = {{listener_.fd, POLLIN, 0}, {stops_.fd(), POLLIN, 0}};
    for (;;) {
      if (poll(files, 2, -1) < 0 && errno != EINTR) return;
      if (files[1].revents != 0) return;
      const int fd = accept4(listener_.fd, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0)
        add(fd);
      else if (errno != EAGAIN)  // no file is free: not asked again at once, as the listener stays ready
        poll(files + 1, 1, 100);
    }
  }
  void add(int fd) {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(fd);
    try {
      if (waiting_.size() > num_free_ && threads_.size() < static_cast<size_t>(options_.threads)) {
        threads_.emplace_back([this] { serve_all(); });
        ++num_free_;
      }
    } catch (const std::system_error&) {
      // No thread is to be had: it waits for one that there is.
    }
    if (waiting_.size() > num_free_) crowded_.set();
    changed_.notify_one();
  }
  /// On each thread.
  void serve_all() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !waiting_.empty() || stops_.is_set(); });
      if (waiting_.empty()) return;
      const int fd = waiting_.front();
      waiting_.pop_front();
      --num_free_;
      if (waiting_.empty()) crowded_.reset();
      lock.unlock();
      serve(fd);
      lock.lock();
      ++num_free_;
    }
  }

  void serve(int fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    HttpConnection connection(fd, stops_, crowded_, options_.limits);
    Current current{connection};
    current_ = &current;
    for (bool is_last = false; !is_last && connection.await_request();) {
      is_last = crowded_.is_set() || stops_.is_set();
      current.must_close = true;  // unless the head can be read
      const bool is_answered = parser_.answer(connection, is_last, [&](httplib::Request& request) {
        request.ranges.clear();  // of answers
        current.path = std::exchange(request.path, "/");
        current.must_close = false;
      });
      is_last = !connection.flush() || is_last || !is_answered || current.must_close;
    }
    if (current.must_close) connection.end();
  }

  /// Answers what has no body, and what is not to have one.
  Handled head(const httplib::Request& request, httplib::Response& response) {
    HttpCall call = call_of(request, response);
    Current& current = *current_;
    const auto refuse = [&](int status, const std::string& message) {
      current.must_close = true;  // what follows is not read
      response.set_header("Connection", "close");
      call.refuse(status, message);
      return Handled::Handled;
    };
    const auto header = [&](const char* name) { return request.get_header_value(name); };
    const bool is_chunked = request.has_header("Transfer-Encoding");
    const std::string length = header("Content-Length");
    size_t bytes = 0;
    if (is_chunked && header("Transfer-Encoding") != "chunked")
      return refuse(501, "Transfer-Encoding: expected chunked or none, got '" + header("Transfer-Encoding") + "'");
    if (request.get_header_value_count("Content-Length") + (is_chunked ? 1 : 0) > 1)
      return refuse(400, "Content-Length: expected one length of the body, got several");
    if (request.has_header("Content-Length") && !read(length, bytes))
      return refuse(400, "Content-Length: expected a number of bytes, got '" + length + "'");
    if (bytes > options_.limits.body_bytes)
      return refuse(413,
                    "body: expected at most " + std::to_string(options_.limits.body_bytes) + " bytes, got " + length);
    if (request.has_header("Content-Encoding") && header("Content-Encoding") != "identity")
      return refuse(415, "Content-Encoding: expected none, got '" + header("Content-Encoding") + "'");
    if (call.method != "GET" && call.method != "POST")
      return refuse(405, "method: expected GET or POST, got " + call.method);
    current.connection.expect(is_chunked ? 2 * options_.limits.body_bytes + options_.limits.head_bytes : bytes);
    if (call.method == "POST" && (is_chunked || bytes > 0)) return Handled::Unhandled;
    if (is_chunked || bytes > 0) return refuse(400, "body: expected none of a GET, got one");
    handle(call);
    return Handled::Handled;
  }
  void with_body(const httplib::Request& request, httplib::Response& response, const httplib::ContentReader& reader) {
    HttpCall call = call_of(request, response);
    bool is_large = false;
    const bool has_come = reader([&](const char* bytes, size_t size) {
      is_large = call.body.size() + size > options_.limits.body_bytes;
      if (!is_large) call.body.append(bytes, size);
      return !is_large;
    });
    if (has_come) return handle(call);
    current_->must_close = true;
    response.set_header("Connection", "close");
    if (is_large)
      call.refuse(413, "body: expected at most " + std::to_string(options_.limits.body_bytes) + " bytes, got more");
    else
      call.refuse(408, "body: expected all of it in time, got " + std::to_string(call.body.size()) + " bytes");
  }
  void handle(HttpCall& call) {
    try {
      handler_(call);
    } catch (const std::exception& error) {
      call.refuse(500, error.what());
    }
  }

  HttpCall call_of(const httplib::Request& request, httplib::Response& response) const {
    return {request.method == "HEAD" ? "GET" : request.method,
            current_->path,
            request,
            {},
            response,
            [connection = &current_->connection] { return connection->is_gone(); }};
  }
  static bool read(const std::string& digits, size_t& number) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return error == std::errc() && end == digits.data() + digits.size();
  }

  static inline thread_local Current* current_ = nullptr;
  const HttpOptions options_;
  const Handler handler_;
  const File listener_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const Signal stops_, crowded_;
  int port_ = 0;
  Parser parser_;
  std::thread acceptor_;
  std::mutex mutex_;  // what follows; threads_ until the acceptor has ended
  std::condition_variable changed_;
  std::deque<int> waiting_;  // connections
  size_t num_free_ = 0;      // threads
  std::vector<std::thread> threads_;
};

}  // namespace kserve
