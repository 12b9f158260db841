// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A connection to one Redis server that never waits: who has several of them waits for all by poll(). Replies are
/// parsed by hiredis.

#if !__has_include(<hiredis/hiredis.h>)
#error "warprank's Redis store needs hiredis: apt-get install libhiredis-dev"
#endif

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "warprank/core/error.hpp"

namespace warprank::redis {

struct Address {
  std::string host;
  int port = 6379;

  /// Of "HOST:PORT", or "HOST" for the usual port. Throws invalid_argument.
  static Address from(const std::string& text) {
    const size_t colon = text.rfind(':');
    Address address{text.substr(0, colon)};
    const char* const end = text.data() + text.size();
    bool is_good = !address.host.empty();
    if (colon != std::string::npos) {
      const auto [read, error] = std::from_chars(text.data() + colon + 1, end, address.port);
      is_good = is_good && error == std::errc() && read == end && address.port > 0 && address.port < 65536;
    }
    if (!is_good) throw invalid_argument("address of a Redis server", "HOST:PORT or HOST", "'" + text + "'");
    return address;
  }
  bool operator==(const Address& other) const { return host == other.host && port == other.port; }
  std::string text() const { return host + ":" + std::to_string(port); }
};

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using ReplyPointer = std::unique_ptr<redisReply, FreeReply>;

inline std::string_view text_of(const redisReply& reply) {
  return reply.str == nullptr ? std::string_view() : std::string_view(reply.str, static_cast<size_t>(reply.len));
}

/// Once is_broken() nothing but that and error() counts.
class Connection {
 public:
  /// Begins to connect. `hello` is sent first, `hello_replies` replies to it must be no errors.
  Connection(const Address& address, const std::string& hello, int hello_replies)
      : output_(hello), hello_replies_(hello_replies), reader_(redisReaderCreate()) {
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    const int code = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
    if (code != 0) {
      fail(gai_strerror(code));
      return;
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
    for (const addrinfo* one = list.get(); one != nullptr && socket_ < 0; one = one->ai_next) begin(*one);
    if (socket_ < 0) fail(std::strerror(errno));
  }
  ~Connection() { close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool is_broken() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  bool is_connected() const { return is_connected_; }
  int socket() const { return socket_; }
  short events() const {
    return static_cast<short>(POLLIN | (!is_connected_ || written_ < output_.size() ? POLLOUT : 0));
  }

  void send(std::string_view text) { output_ += text; }

  /// Goes on with what poll() says can be.
  void handle(short events) {
    if (!is_connected_ && (events & (POLLOUT | POLLERR | POLLHUP)) != 0) end_connecting();
    if (!is_broken() && is_connected_ && (events & POLLOUT) != 0) write();
    if (!is_broken() && (events & (POLLIN | POLLERR | POLLHUP)) != 0) read();
  }

  /// Null where there is none yet.
  ReplyPointer next_reply() {
    while (!is_broken()) {
      void* reply = nullptr;
      if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
        fail(reader_->errstr);
        break;
      }
      ReplyPointer owned(static_cast<redisReply*>(reply));
      if (owned == nullptr || hello_replies_ == 0) return owned;
      --hello_replies_;
      if (owned->type == REDIS_REPLY_ERROR) fail(std::string(text_of(*owned)));
    }
    return nullptr;
  }

 private:
  struct FreeReader {
    void operator()(redisReader* reader) const { redisReaderFree(reader); }
  };

  void begin(const addrinfo& address) {
    socket_ = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket_ < 0) return;
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (::connect(socket_, address.ai_addr, address.ai_addrlen) == 0 || errno == EINPROGRESS) return;
    const int error = errno;
    close();
    errno = error;
  }
  void end_connecting() {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) return fail(std::strerror(error));
    is_connected_ = true;
  }
  void write() {
    while (written_ < output_.size()) {
      // Without a signal where the other side has gone.
      const ssize_t count = ::send(socket_, output_.data() + written_, output_.size() - written_, MSG_NOSIGNAL);
      if (count >= 0) {
        written_ += static_cast<size_t>(count);
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return;
      } else if (errno != EINTR) {
        return fail(std::strerror(errno));
      }
    }
    output_.clear();
    written_ = 0;
  }
  void read() {
    char bytes[1 << 16];
    for (;;) {
      const ssize_t count = ::recv(socket_, bytes, sizeof bytes, 0);
      if (count > 0) {
        if (redisReaderFeed(reader_.get(), bytes, static_cast<size_t>(count)) != REDIS_OK) return fail(reader_->errstr);
        if (count < static_cast<ssize_t>(sizeof bytes)) return;
      } else if (count == 0) {
        return fail("the server closed the connection");
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return;
      } else if (errno != EINTR) {
        return fail(std::strerror(errno));
      }
    }
  }
  void fail(std::string error) {
    error_ = error.empty() ? "an error without a text" : std::move(error);
    close();
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  int socket_ = -1;
  bool is_connected_ = false;
  std::string output_, error_;
  size_t written_ = 0;
  int hello_replies_;
  std::unique_ptr<redisReader, FreeReader> reader_;
};

}  // namespace warprank::redis
