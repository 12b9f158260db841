// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "warprank/store/redis/slots.hpp"

namespace warprank { inline namespace v0 { namespace redis {

/// Commands in the format of Redis's protocol, one after the other, each with the slot of its key.
class Requests {
 public:
  /// Adds a command of any number of parts, which may be any bytes.
  template <class... Parts>
  void add(int slot, const Parts&... parts) {
    requests_.push_back({slot, text_.size()});
    append('*', sizeof...(parts));
    (append(std::string_view(parts)), ...);
  }
  template <class... Parts>
  void add_for_key(std::string_view command, std::string_view key, const Parts&... parts) {
    add(slot_of(key), command, key, parts...);
  }
  void clear() {
    requests_.clear();
    text_.clear();
  }

  int64_t size() const { return static_cast<int64_t>(requests_.size()); }
  int slot(int64_t i) const { return requests_[static_cast<size_t>(i)].slot; }
  std::string_view text(int64_t i) const {
    const size_t begin = requests_[static_cast<size_t>(i)].begin;
    const size_t end = i + 1 < size() ? requests_[static_cast<size_t>(i + 1)].begin : text_.size();
    return std::string_view(text_).substr(begin, end - begin);
  }
  std::string_view text() const { return text_; }

 private:
  struct Request {
    int slot;
    size_t begin;
  };

  void append(char kind, size_t number) {
    text_ += kind;
    text_ += std::to_string(number);
    text_ += "\r\n";
  }
  void append(std::string_view part) {
    append('$', part.size());
    text_ += part;
    text_ += "\r\n";
  }

  std::vector<Request> requests_;
  std::string text_;
};

}}}  // namespace warprank::v0::redis
