// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

namespace rank_client {

/// The users that a server said it knows, a bounded number of them: those that were asked for last. Any threads at
/// once.
class KnownUsers {
 public:
  explicit KnownUsers(size_t most) : most_(most) {}

  /// Whether it has a user, who is then the last that was asked for.
  bool has(const std::string& user) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ask_for(user);
  }
  void add(const std::string& user) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (most_ == 0 || ask_for(user)) return;
    if (users_.size() == most_) {
      place_of_.erase(users_.back());
      users_.pop_back();
    }
    users_.push_front(user);
    place_of_.emplace(user, users_.begin());
  }
  void remove(const std::string& user) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = place_of_.find(user);
    if (found == place_of_.end()) return;
    users_.erase(found->second);
    place_of_.erase(found);
  }

 private:
  bool ask_for(const std::string& user) {
    const auto found = place_of_.find(user);
    if (found == place_of_.end()) return false;
    users_.splice(users_.begin(), users_, found->second);
    return true;
  }

  const size_t most_;
  std::mutex mutex_;
  std::list<std::string> users_;  // the last that was asked for is the first
  std::unordered_map<std::string, std::list<std::string>::iterator> place_of_;
};

}  // namespace rank_client
