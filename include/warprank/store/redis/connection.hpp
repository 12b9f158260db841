// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A connection to one Redis server that never waits: a caller with several connections waits for all by poll().
/// hiredis parses the replies.

#if !__has_include(<hiredis/hiredis.h>)
#error "warprank's Redis store needs hiredis: apt-get install libhiredis-dev"
#endif

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "warprank/store/redis/resolver.hpp"

namespace warprank { inline namespace v0 { namespace redis {

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using ReplyPointer = std::unique_ptr<redisReply, FreeReply>;

inline std::string_view text_of(const redisReply& reply) {
  return reply.str == nullptr ? std::string_view() : std::string_view(reply.str, static_cast<size_t>(reply.len));
}

/// Once is_broken() is true, only is_broken() and error() have a meaning.
class Connection {
 public:
  /// Begins to connect to the addresses of the name. Sends `hello` first; the `hello_replies` replies to it must not be
  /// errors.
  Connection(std::shared_ptr<const NameAnswer> name, const std::string& hello, int hello_replies)
      : name_(std::move(name)), output_(hello), hello_replies_(hello_replies), reader_(redisReaderCreate()) {
    if (name_->is_there()) connect();
  }
  ~Connection() { close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool is_broken() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  bool is_connected() const { return is_connected_; }
  /// The descriptor to poll: the name's, until the name is known.
  int descriptor() const { return name_ != nullptr ? name_->event() : socket_; }
  short events() const {
    if (name_ != nullptr) return POLLIN;
    return static_cast<short>(POLLIN | (!is_connected_ || written_ < output_.size() ? POLLOUT : 0));
  }

  void send(std::string_view text) { output_ += text; }

  /// Goes on with the events that poll() reports.
  void handle(short events) {
    if (name_ != nullptr) {
      if (name_->is_there()) connect();
      return;
    }
    if (!is_connected_ && (events & (POLLOUT | POLLERR | POLLHUP)) != 0) end_connecting();
    if (!is_broken() && is_connected_ && (events & POLLOUT) != 0) write();
    if (!is_broken() && (events & (POLLIN | POLLERR | POLLHUP)) != 0) read();
  }

  /// Null if there is none yet.
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

  void connect() {
    const std::shared_ptr<const NameAnswer> name = std::move(name_);
    const Resolved& resolved = name->resolved();
    if (!resolved.error.empty()) return fail(resolved.error);
    for (const SocketAddress& address : resolved.addresses)
      if (socket_ < 0) begin(address);
    if (socket_ < 0) fail(std::strerror(errno));
  }
  void begin(const SocketAddress& address) {
    socket_ = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket_ < 0) return;
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0 ||
        errno == EINPROGRESS)
      return;
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
      // Without a signal if the other side has gone.
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

  std::shared_ptr<const NameAnswer> name_;  // null once the name is known
  int socket_ = -1;
  bool is_connected_ = false;
  std::string output_, error_;
  size_t written_ = 0;
  int hello_replies_;
  std::unique_ptr<redisReader, FreeReader> reader_;
};

}}}  // namespace warprank::v0::redis
