// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

namespace kserve {

/// What a client of HTTP may take. A request has `arrives` to come, head and body, and a client as long to read the
/// answer; while other connections wait for a thread it has `hurried`, and one that sends nothing as long.
struct HttpLimits {
  std::chrono::milliseconds arrives{30'000};
  std::chrono::milliseconds idle{60'000};  ///< between requests
  std::chrono::milliseconds hurried{2'000};
  size_t head_bytes = 32 << 10;
  size_t body_bytes = 64 << 20;
};

struct HttpOptions {
  int port = 0;          ///< 0: any that is free
  bool is_local = true;  ///< of 127.0.0.1, else of all addresses of this machine
  int threads = 64;      ///< requests at a time, and connections that are kept while others wait
  HttpLimits limits = {};
};

}  // namespace kserve
