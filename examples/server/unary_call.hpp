// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One call with one request and one response.

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <memory>
#include <utility>

#include "call_queues.hpp"

namespace kserve {

/// How a service of gRPC is asked for the next call of a method.
template <class Service, class Request, class Response>
using Ask = void (Service::*)(grpc::ServerContext*, Request*, grpc::ServerAsyncResponseWriter<Response>*,
                              grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*);

/// A method, and what answers it.
template <class Service, class Request, class Response>
struct UnaryMethod {
  using Writer = grpc::ServerAsyncResponseWriter<Response>;
  using Done = std::function<void(const grpc::Status&)>;

  Ask<Service, Request, Response> ask;
  Service& service;
  /// Calls back once, from this thread or another. Its arguments live until then.
  std::function<void(const grpc::ServerContext&, const Request&, Response&, Done)> handle;
};

/// Waits for a client, is handled, and answered; then it deletes itself.
template <class Service, class Request, class Response>
class UnaryCall {
 public:
  using Method = UnaryMethod<Service, Request, Response>;

  /// Waits for a client, and so again whenever one has come.
  static void await(std::shared_ptr<const Method> method, CallQueues& queues, grpc::ServerCompletionQueue& queue) {
    (new UnaryCall(std::move(method), queues, queue))->ask();
  }

 private:
  UnaryCall(std::shared_ptr<const Method> method, CallQueues& queues, grpc::ServerCompletionQueue& queue)
      : method_(std::move(method)), queues_(queues), queue_(queue), stay_(queues) {}

  void ask() { (method_->service.*method_->ask)(&context_, &request_, &writer_, &queue_, &queue_, &arrived_); }

  void arrived(bool ok) {
    if (!ok) return delete this;  // the server shuts down
    await(method_, queues_, queue_);
    method_->handle(context_, request_, response_,
                    [this](const grpc::Status& status) { writer_.Finish(response_, status, &answered_); });
  }

  const std::shared_ptr<const Method> method_;
  CallQueues& queues_;
  grpc::ServerCompletionQueue& queue_;
  const CallQueues::Stay stay_;
  grpc::ServerContext context_;
  Request request_;
  Response response_;
  typename Method::Writer writer_{&context_};
  Step arrived_{[this](bool ok) { arrived(ok); }};
  Step answered_{[this](bool) { delete this; }};
};

}  // namespace kserve
