// SPDX-License-Identifier: Apache-2.0

#include "http_ports.hpp"

#include "http_service.hpp"

namespace kserve {

struct HttpPorts::Port {
  Port(Calls& calls, HttpOptions options, HttpService::Has has, int port)
      : service(calls, has), server((options.port = port, options), [this](HttpCall& call) { service.answer(call); }) {}

  const HttpService service;
  const HttpServer server;
};

HttpPorts::HttpPorts(Calls& calls, const HttpOptions& options, bool has_calls, int metrics_port)
    : all_(options.port < 0
               ? nullptr
               : std::make_unique<Port>(calls, options, has_calls ? HttpService::Has::calls : HttpService::Has::pages,
                                        options.port)),
      metrics_(metrics_port < 0 ? nullptr
                                : std::make_unique<Port>(calls, options, HttpService::Has::pages, metrics_port)) {}

HttpPorts::~HttpPorts() = default;

int HttpPorts::port() const { return all_ == nullptr ? -1 : all_->server.port(); }
int HttpPorts::metrics_port() const { return metrics_ == nullptr ? -1 : metrics_->server.port(); }

}  // namespace kserve
