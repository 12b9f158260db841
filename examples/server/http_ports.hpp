// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "http_options.hpp"

namespace kserve {

class Calls;

/// The ports that the server has for HTTP; a file of its own, which is compiled beside main.cpp.
class HttpPorts {
 public:
  /// `options.port`: health, metrics and, if `has_calls`, calls; `metrics_port`: health and metrics; -1: none. Throws
  /// warprank::invalid_argument. `calls` outlives it.
  HttpPorts(Calls& calls, const HttpOptions& options, bool has_calls, int metrics_port);
  ~HttpPorts();
  HttpPorts(const HttpPorts&) = delete;
  HttpPorts& operator=(const HttpPorts&) = delete;

  int port() const;
  int metrics_port() const;

 private:
  struct Port;
  const std::unique_ptr<Port> all_, metrics_;
};

}  // namespace kserve
