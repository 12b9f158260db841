// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A client of HTTP, byte by byte.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

namespace kserve {

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
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// False where the server has closed it.
  bool write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  /// Until the server closes it.
  std::string read_all() const {
    std::string text;
    while (read_more(text)) {
    }
    return text;
  }
  /// One answer, as long as it says.
  std::string read_answer() const {
    std::string text;
    constexpr std::string_view name = "Content-Length: ";
    for (;;) {
      const size_t length = text.find(name), head = text.find("\r\n\r\n", length);
      if (head != std::string::npos &&
          text.size() >= head + 4 + std::strtoul(text.c_str() + length + name.size(), nullptr, 10))
        return text;
      if (!read_more(text)) return text;
    }
  }

 private:
  bool read_more(std::string& text) const {
    char bytes[4096];
    const ssize_t got = recv(fd_, bytes, sizeof bytes, 0);
    if (got > 0) text.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }

  const int fd_;
};

}  // namespace kserve
