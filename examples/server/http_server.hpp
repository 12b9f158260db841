// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Answers GET requests of health checks and of Prometheus: HTTP/1.1, one after the other, each within two seconds. For
/// a port that strangers cannot reach.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "warprank/core/error.hpp"

namespace kserve {

class HttpServer {
 public:
  struct Page {
    int status = 200;
    std::string text;
  };
  /// The page of a path; must not throw.
  using Handler = std::function<Page(std::string_view path)>;

  /// Listens on a port, 0: any that is free; of all addresses of this machine, or of 127.0.0.1. Throws
  /// warprank::invalid_argument.
  HttpServer(int port, bool is_local, Handler handler) : handler_(std::move(handler)) {
    const int on = 1;
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(is_local ? INADDR_LOOPBACK : INADDR_ANY);
    address.sin_port = htons(static_cast<uint16_t>(port));
    socklen_t size = sizeof address;
    if (listener_.fd < 0 || stop_.fd < 0 || setsockopt(listener_.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(listener_.fd, reinterpret_cast<const sockaddr*>(&address), size) != 0 || listen(listener_.fd, 16) != 0 ||
        getsockname(listener_.fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw warprank::invalid_argument("HTTP port", "one that is free to listen on", std::to_string(port));
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~HttpServer() {
    const uint64_t one = 1;
    if (write(stop_.fd, &one, sizeof one) == sizeof one) thread_.join();
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct File {
    explicit File(int opened) : fd(opened) {}
    ~File() {
      if (fd >= 0) close(fd);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    const int fd;
  };

  void run() {
    while (wait(listener_.fd, POLLIN, Clock::time_point::max())) {
      const File client(accept4(listener_.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (client.fd >= 0)
        answer(client.fd);
      else  // no file is free: not asked again at once, as the listener stays ready
        wait(-1, 0, Clock::now() + std::chrono::milliseconds(100));
    }
  }

  /// False when the server stops, and at the end of the time.
  bool wait(int fd, short events, Clock::time_point end) const {
    int64_t left = -1;
    if (end != Clock::time_point::max())
      left = std::max<int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count(), 0);
    pollfd files[] = {{fd, events, 0}, {stop_.fd, POLLIN, 0}};
    const int ready = poll(files, 2, static_cast<int>(left));
    return (ready > 0 || (ready < 0 && errno == EINTR)) && files[1].revents == 0;
  }

  void answer(int fd) const {
    const Clock::time_point end = Clock::now() + std::chrono::seconds(2);
    constexpr size_t most = 8192;
    std::string request;
    while (request.find("\r\n\r\n") == std::string::npos) {
      char bytes[1024];
      if (request.size() > most || !wait(fd, POLLIN, end)) return;
      const ssize_t got = recv(fd, bytes, sizeof bytes, 0);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
      if (got > 0) request.append(bytes, static_cast<size_t>(got));
    }
    send_all(fd, response(request), end);
  }

  std::string response(std::string_view request) const {
    Page page{405, "expected GET\n"};
    if (request.substr(0, 4) == "GET ") {
      request.remove_prefix(4);
      page = handler_(request.substr(0, request.find_first_of(" ?\r")));
    }
    const char* const reason = page.status == 200   ? "OK"
                               : page.status == 404 ? "Not Found"
                               : page.status == 405 ? "Method Not Allowed"
                                                    : "Service Unavailable";
    return "HTTP/1.1 " + std::to_string(page.status) + " " + reason +
           "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nConnection: close\r\nContent-Length: " +
           std::to_string(page.text.size()) + "\r\n\r\n" + page.text;
  }

  void send_all(int fd, std::string_view bytes, Clock::time_point end) const {
    while (!bytes.empty()) {
      if (!wait(fd, POLLOUT, end)) return;
      const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return;
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }

  const Handler handler_;
  const File listener_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const File stop_{eventfd(0, EFD_CLOEXEC)};
  int port_ = 0;
  std::thread thread_;
};

}  // namespace kserve
