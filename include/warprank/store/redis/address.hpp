// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <system_error>

#include "warprank/core/error.hpp"

namespace warprank { inline namespace v0 { namespace redis {

struct Address {
  std::string host;
  int port = 6379;

  /// The address in "HOST:PORT", or in "HOST" for the usual port. Throws invalid_argument for other texts.
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

}}}  // namespace warprank::v0::redis
