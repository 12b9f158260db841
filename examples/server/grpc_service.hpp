// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The methods of the protocol by gRPC. One thread for calls does for any number of them, as none waits.

#include <grpcpp/server_context.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "call_queues.hpp"
#include "calls.hpp"
#include "infer_stream.hpp"
#include "inference.grpc.pb.h"
#include "unary_call.hpp"

namespace kserve {

class GrpcService {
 public:
  using Protocol = inference::GRPCInferenceService::AsyncService;
  using Status = grpc::Status;
  using Done = std::function<void(const Status&)>;

  /// `calls` outlives it.
  explicit GrpcService(Calls& calls) : calls_(calls) {}
  GrpcService(const GrpcService&) = delete;
  GrpcService& operator=(const GrpcService&) = delete;

  /// What the server registers.
  Protocol& protocol() { return protocol_; }
  /// Calls of the protocol are answered from now on.
  void accept(CallQueues& queues) {
    at_once(queues, &Protocol::RequestServerLive, &Calls::live, Who::anybody);
    at_once(queues, &Protocol::RequestServerReady, &Calls::ready, Who::anybody);
    at_once(queues, &Protocol::RequestServerMetadata, &Calls::metadata);
    at_once(queues, &Protocol::RequestModelReady, &Calls::model_ready);
    at_once(queues, &Protocol::RequestModelMetadata, &Calls::model_metadata);
    at_once(queues, &Protocol::RequestModelConfig, &Calls::model_config);
    at_once(queues, &Protocol::RequestModelStatistics, &Calls::model_statistics);
    at_once(queues, &Protocol::RequestRepositoryIndex, &Calls::index);
    at_once(queues, &Protocol::RequestRepositoryModelUnload, &Calls::unload);
    at_once(queues, &Protocol::RequestSystemSharedMemoryStatus, &Calls::system_memory);
    at_once(queues, &Protocol::RequestSystemSharedMemoryRegister, &Calls::register_system_memory);
    at_once(queues, &Protocol::RequestSystemSharedMemoryUnregister, &Calls::unregister_system_memory);
    at_once(queues, &Protocol::RequestCudaSharedMemoryStatus, &Calls::cuda_memory);
    at_once(queues, &Protocol::RequestCudaSharedMemoryRegister, &Calls::register_cuda_memory);
    at_once(queues, &Protocol::RequestCudaSharedMemoryUnregister, &Calls::unregister_cuda_memory);
    later(queues, &Protocol::RequestRepositoryModelLoad, &GrpcService::load);
    later(queues, &Protocol::RequestModelInfer, &GrpcService::infer);
    for (const auto& queue : queues.list()) InferStream::await(protocol_, score_, queues, *queue);
  }

 private:
  enum class Who { with_token, anybody };

  /// A method that answers at once, on the thread of the call's queue.
  template <class Base, class Request, class Response>
  void at_once(CallQueues& queues, Ask<Base, Request, Response> ask, Status (Calls::*answer)(const Request&, Response&),
               Who who = Who::with_token) {
    accept<Base, Request, Response>(
        queues, ask,
        [this, answer, who](const CallContext& context, const Request& request, Response& response, const Done& done) {
          const Status status = who == Who::anybody ? Status::OK : allowed(context);
          done(status.ok() ? (calls_.*answer)(request, response) : status);
        });
  }
  /// A method that answers from another thread.
  template <class Base, class Request, class Response>
  void later(CallQueues& queues, Ask<Base, Request, Response> ask,
             void (GrpcService::*answer)(CallContext&, const Request&, Response&, const Done&)) {
    accept<Base, Request, Response>(
        queues, ask,
        [this, answer](CallContext& context, const Request& request, Response& response, const Done& done) {
          const Status status = allowed(context);
          status.ok() ? (this->*answer)(context, request, response, done) : done(status);
        });
  }
  template <class Base, class Request, class Response, class Handle>
  void accept(CallQueues& queues, Ask<Base, Request, Response> ask, Handle handle) {
    const auto method = std::make_shared<const UnaryMethod<Base, Request, Response>>(
        UnaryMethod<Base, Request, Response>{ask, protocol_, std::move(handle)});
    for (const auto& queue : queues.list()) UnaryCall<Base, Request, Response>::await(method, queues, *queue);
  }

  void load(CallContext&, const inference::RepositoryModelLoadRequest& request,
            inference::RepositoryModelLoadResponse& response, const Done& done) {
    calls_.load(request, response, done);
  }
  void infer(CallContext& context, const inference::ModelInferRequest& request, inference::ModelInferResponse& response,
             const Done& done) {
    if (context.number == 0) {
      context.number = calls_.model().service().new_call();
      context.cancelled = [this, call = context.number] { calls_.model().service().cancel(call); };
    }
    calls_.infer(request, response, deadline_of(context), done, context.number);
  }

  Status allowed(const grpc::ServerContext& context) const {
    const auto found = context.client_metadata().find("authorization");
    if (found == context.client_metadata().end()) return calls_.allowed({});
    return calls_.allowed({found->second.data(), found->second.size()});
  }

  /// gRPC's deadline on the clock of the queue.
  static std::chrono::steady_clock::time_point deadline_of(const grpc::ServerContext& context) {
    const auto left = context.deadline() - std::chrono::system_clock::now();
    if (left > std::chrono::hours(24)) return std::chrono::steady_clock::time_point::max();
    return std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(left);
  }

  Calls& calls_;
  Protocol protocol_;
  const InferStream::Score score_ = [this](CallContext& context, const inference::ModelInferRequest& request,
                                           inference::ModelInferResponse& response, const Done& done) {
    const Status status = allowed(context);
    status.ok() ? infer(context, request, response, done) : done(status);
  };
};

}  // namespace kserve
