// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Addresses of hosts by their names. The system's look-up may take seconds and knows no deadline, so it has threads of
/// its own, one for each name, and the addresses of a name are kept.

#include <netdb.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "warprank/store/redis/address.hpp"

namespace warprank { inline namespace v0 { namespace redis {

/// An address of a socket.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
};

/// The addresses of a name, or the reason why they are not known.
struct Resolved {
  std::vector<SocketAddress> addresses = {};
  std::string error = {};
};

/// Resolves a name by the system, however long that takes. `flags` are getaddrinfo's.
inline Resolved resolve(const Address& address, int flags = 0) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  const int code = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (code != 0) return {{}, gai_strerror(code)};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  Resolved resolved;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    SocketAddress& to = resolved.addresses.emplace_back();
    to.size = static_cast<socklen_t>(one->ai_addrlen);
    std::memcpy(&to.storage, one->ai_addr, one->ai_addrlen);
  }
  return resolved;
}

/// An answer that may be on its way.
class NameAnswer {
 public:
  NameAnswer() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (event_ < 0) set({{}, std::strerror(errno)});
  }
  /// An answer that is there.
  explicit NameAnswer(Resolved resolved) : resolved_(std::move(resolved)), is_there_(true) {}
  ~NameAnswer() {
    if (event_ >= 0) close(event_);
  }
  NameAnswer(const NameAnswer&) = delete;
  NameAnswer& operator=(const NameAnswer&) = delete;

  bool is_there() const { return is_there_.load(std::memory_order_acquire); }
  /// Only of an answer that is there.
  const Resolved& resolved() const { return resolved_; }
  /// A descriptor that can be read from once the answer is there.
  int event() const { return event_; }

  /// Gives the answer, once.
  void set(Resolved resolved) {
    resolved_ = std::move(resolved);
    is_there_.store(true, std::memory_order_release);
    const uint64_t one = 1;
    if (event_ >= 0) (void)!write(event_, &one, sizeof one);
  }

 private:
  int event_ = -1;
  Resolved resolved_;
  std::atomic<bool> is_there_{false};
};

/// For any threads at once; never waits.
class Resolver {
 public:
  using Resolve = std::function<Resolved(const Address&)>;

  /// `resolve` may take any time, even longer than the resolver lives.
  explicit Resolver(Resolve resolve) : resolve_(std::move(resolve)), state_(std::make_shared<State>()) {}

  /// The known addresses of a name, even if they are old and a new look-up is under way; if none are known, the answer
  /// that is to come.
  std::shared_ptr<const NameAnswer> find(const Address& address) {
    if (Resolved numeric = redis::resolve(address, AI_NUMERICHOST); numeric.error.empty())
      return std::make_shared<NameAnswer>(std::move(numeric));
    const std::lock_guard<std::mutex> lock(state_->mutex);
    forget_old_names();
    Name& name = state_->names[address.text()];
    if (name.pending == nullptr && Clock::now() >= name.ask_again) ask(address, name);
    return name.known != nullptr ? name.known : name.pending;
  }
  /// Reports that nobody answered at the known addresses of a name: it may have others now.
  void doubt(const Address& address) {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    const auto name = state_->names.find(address.text());
    if (name != state_->names.end()) name->second.ask_again = {};
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds keep_for{30}, keep_failures_for{1};
  static constexpr size_t many_names = 1024;

  struct Name {
    std::shared_ptr<NameAnswer> known, pending;
    Clock::time_point ask_again = {};
  };
  struct State {
    std::mutex mutex;  // guards the members below
    std::map<std::string, Name> names;
  };

  // With the mutex held:
  void ask(const Address& address, Name& name) {
    name.pending = std::make_shared<NameAnswer>();
    try {
      std::thread([state = state_, resolve = resolve_, address, answer = name.pending] {
        Resolved resolved = resolve ? resolve(address) : redis::resolve(address);
        const std::lock_guard<std::mutex> lock(state->mutex);
        Name& asked = state->names[address.text()];
        const bool is_good = resolved.error.empty();
        asked.ask_again = Clock::now() + (is_good ? keep_for : keep_failures_for);
        // Without the event, which only present waiters need. If the look-up fails, an older answer stays.
        if (is_good || asked.known == nullptr) asked.known = std::make_shared<NameAnswer>(resolved);
        asked.pending = nullptr;
        answer->set(std::move(resolved));
      }).detach();
    } catch (const std::system_error& error) {  // no more threads
      name.known = std::make_shared<NameAnswer>(Resolved{{}, error.what()});
      name.pending = nullptr;
      name.ask_again = Clock::now() + keep_failures_for;
    }
  }
  void forget_old_names() {
    auto& names = state_->names;
    if (names.size() < many_names) return;
    const auto now = Clock::now();
    for (auto name = names.begin(); name != names.end();)
      name = name->second.pending == nullptr && now >= name->second.ask_again ? names.erase(name) : std::next(name);
  }

  const Resolve resolve_;
  const std::shared_ptr<State> state_;  // threads that still ask have it, too
};

}}}  // namespace warprank::v0::redis
