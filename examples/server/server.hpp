// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A gRPC server of one model.

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "call_queues.hpp"
#include "calls.hpp"
#include "grpc_service.hpp"
#include "hosted_model.hpp"

namespace kserve {

struct ServerOptions {
  std::string address = "127.0.0.1:8001";  ///< port 0: any that is free
  std::string token = {};                  ///< that clients must send; empty: none
  std::string certificate = {}, key = {};  ///< PEM files; empty: no TLS
  int most_message_bytes = 64 << 20;       ///< of a request
  int most_calls = 1024;                   ///< under way at a time, for each connection
  int threads = 1;                         ///< for calls: reading, parsing, answering, but not scoring
};

class Server {
 public:
  /// Serves when it returns. Throws warprank::invalid_argument when it cannot. `model` outlives it.
  Server(HostedModel& model, const ServerOptions& options) : calls_(model, options.token), service_(calls_) {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(options.most_message_bytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.most_calls);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second server on a port is a mistake
    builder.AddListeningPort(options.address, credentials(options), &port_);
    builder.RegisterService(&service_.protocol());
    queues_ = std::make_unique<CallQueues>(builder, options.threads);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0)
      throw warprank::invalid_argument("address", "one that is free to listen on", options.address);
    service_.accept(*queues_);
    queues_->start();
  }
  ~Server() { stop(std::chrono::seconds(0)); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return port_; }
  /// Its methods, which others may call, too.
  Calls& calls() { return calls_; }

  /// Takes no more calls, and returns when those under way are answered; after `patience` they are cancelled.
  void stop(std::chrono::milliseconds patience) {
    if (server_ == nullptr) return;
    calls_.begin_drain();
    server_->Shutdown(std::chrono::system_clock::now() + patience);
    calls_.model().stop();  // cancelled calls have requests in its queue
    queues_->drain();
    server_.reset();
  }

 private:
  static std::shared_ptr<grpc::ServerCredentials> credentials(const ServerOptions& options) {
    if (options.certificate.empty() && options.key.empty()) return grpc::InsecureServerCredentials();
    grpc::SslServerCredentialsOptions ssl;
    ssl.pem_key_cert_pairs.push_back({read(options.key, "key"), read(options.certificate, "certificate")});
    return grpc::SslServerCredentials(ssl);
  }
  static std::string read(const std::string& path, const char* what) {
    std::ifstream file(path, std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(file), {});
    if (text.empty()) throw warprank::invalid_argument(what, "a PEM file", "'" + path + "'");
    return text;
  }

  Calls calls_;
  GrpcService service_;
  int port_ = 0;
  std::unique_ptr<CallQueues> queues_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace kserve
