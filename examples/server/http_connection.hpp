// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a client of HTTP sends and is sent: bytes with deadlines, which cpp-httplib parses and writes.

#include <httplib.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "http_options.hpp"

namespace kserve {

/// A descriptor that is closed.
struct File {
  explicit File(int opened) : fd(opened) {}
  ~File() {
    if (fd >= 0) close(fd);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int fd;
};

/// Is set and reset, and can be waited for beside a socket.
class Signal {
 public:
  void set() const {
    const uint64_t one = 1;
    if (write(file_.fd, &one, sizeof one) < 0) return;  // set for long
  }
  void reset() const {
    uint64_t count;
    if (read(file_.fd, &count, sizeof count) < 0) return;  // not set
  }
  bool is_set() const {
    pollfd file = {file_.fd, POLLIN, 0};
    return poll(&file, 1, 0) > 0;
  }
  int fd() const { return file_.fd; }

 private:
  const File file_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

/// A connection, on the thread that serves it.
class HttpConnection final : public httplib::Stream {
 public:
  using Clock = std::chrono::steady_clock;

  /// Owns the descriptor. `stops`: the server ends; `crowded`: other connections wait.
  HttpConnection(int fd, const Signal& stops, const Signal& crowded, const HttpLimits& limits)
      : file_(fd), stops_(stops), crowded_(crowded), limits_(limits) {}

  /// Returns when a request begins; false for a connection that is to be closed.
  bool await_request() {
    begin_ = Clock::now();
    end_ = begin_ + limits_.idle;
    const bool has_come = at_ < filled_ || receive();
    begin_ = Clock::now();
    end_ = begin_ + limits_.arrives;
    left_ = limits_.head_bytes;
    return has_come;
  }
  /// How many bytes may be read from now on: of a body, or with the lengths of its chunks.
  void expect(size_t bytes) { left_ = bytes; }
  /// Sends what was written.
  bool flush() {
    begin_ = Clock::now();  // the time that scoring took is not the client's
    size_t sent = 0;
    while (sent < out_.size()) {
      const ssize_t count = send(file_.fd, out_.data() + sent, out_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count > 0) {
        sent += static_cast<size_t>(count);
      } else if (count == 0 || (errno != EAGAIN && errno != EINTR) || !wait(POLLOUT, begin_ + limits_.arrives)) {
        is_broken_ = true;
        break;
      }
    }
    out_.clear();
    return !is_broken_;
  }
  /// The last answer has been sent, and what else the client sends is not read: it must not lose the answer by that.
  void end() {
    shutdown(file_.fd, SHUT_WR);
    end_ = Clock::now() + std::chrono::seconds(1);
    for (int turn = 0; turn < 64 && receive();) ++turn;
  }
  /// The client has closed the connection, or its half of it.
  bool is_gone() const {
    pollfd file = {file_.fd, POLLRDHUP, 0};
    return poll(&file, 1, 0) > 0;
  }

  bool is_readable() const override { return true; }
  bool is_writable() const override { return !is_broken_; }
  ssize_t read(char* to, size_t size) override {
    size = std::min(size, left_);
    if (size == 0 || (at_ == filled_ && (!flush() || !receive()))) return -1;
    size = std::min(size, filled_ - at_);
    std::copy_n(in_.data() + at_, size, to);
    at_ += size;
    left_ -= size;
    return static_cast<ssize_t>(size);
  }
  ssize_t write(const char* bytes, size_t size) override {
    out_.append(bytes, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  /// cpp-httplib asks only whether select() can take it, which is not used here.
  socket_t socket() const override { return -1; }

 private:
  bool receive() {
    ssize_t count;
    do count = recv(file_.fd, in_.data(), in_.size(), MSG_DONTWAIT);
    while (count < 0 && (errno == EINTR || (errno == EAGAIN && wait(POLLIN, end_))));
    at_ = 0;
    filled_ = static_cast<size_t>(std::max<ssize_t>(count, 0));
    return count > 0;
  }

  /// False at the end of the time, and when the server ends.
  bool wait(short events, Clock::time_point end) const {
    for (bool is_hurried = false;;) {
      if (is_hurried) end = std::min(end, begin_ + limits_.hurried);
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
      if (left <= 0) return false;
      pollfd files[] = {{file_.fd, events, 0}, {stops_.fd(), POLLIN, 0}, {crowded_.fd(), POLLIN, 0}};
      const int ready = poll(files, is_hurried ? 2 : 3, static_cast<int>(left));
      if (ready > 0 && files[1].revents != 0) return false;
      if (ready > 0 && files[0].revents != 0) return true;
      if (ready < 0 && errno != EINTR) return false;
      is_hurried = is_hurried || (ready > 0 && files[2].revents != 0);
    }
  }

  const File file_;
  const Signal& stops_;
  const Signal& crowded_;
  const HttpLimits& limits_;
  Clock::time_point begin_, end_;
  size_t left_ = 0;
  std::vector<char> in_ = std::vector<char>(64 << 10);
  size_t at_ = 0, filled_ = 0;  // what has come and is not read yet
  std::string out_;
  bool is_broken_ = false;
};

}  // namespace kserve
