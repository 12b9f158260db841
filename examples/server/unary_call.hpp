// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One call with one request and one response.

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "call_queues.hpp"

namespace kserve {

/// How a service of gRPC is asked for the next call of a method.
template <class Service, class Request, class Response>
using Ask = void (Service::*)(grpc::ServerContext*, Request*, grpc::ServerAsyncResponseWriter<Response>*,
                              grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*);

/// Of a call whose client may go away.
struct CallContext : grpc::ServerContext {
  uint64_t number = 0;                        ///< warprank::CallOptions::call of its requests
  std::function<void()> cancelled = nullptr;  ///< called on the thread of the call's queue
};

/// A method, and what answers it.
template <class Service, class Request, class Response>
struct UnaryMethod {
  using Writer = grpc::ServerAsyncResponseWriter<Response>;
  using Done = std::function<void(const grpc::Status&)>;

  Ask<Service, Request, Response> ask;
  Service& service;
  /// Calls back once, from this thread or another. Its arguments live until then.
  std::function<void(CallContext&, const Request&, Response&, Done)> handle;
};

/// Waits for a client, is handled, and answered; then it deletes itself. A call whose client does not wait is told so.
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

  void ask() {
    context_.AsyncNotifyWhenDone(&over_);
    (method_->service.*method_->ask)(&context_, &request_, &writer_, &queue_, &queue_, &arrived_);
  }

  void arrived(bool ok) {
    if (!ok) return delete this;  // the server shuts down, and nothing follows
    await(method_, queues_, queue_);
    method_->handle(context_, request_, response_,
                    [this](const grpc::Status& status) { writer_.Finish(response_, status, &answered_); });
  }

  /// Its client has the answer, or has gone.
  void over() {
    if (context_.IsCancelled() && context_.cancelled) context_.cancelled();
    end();
  }
  void end() {
    if (--steps_left_ == 0) delete this;
  }

  const std::shared_ptr<const Method> method_;
  CallQueues& queues_;
  grpc::ServerCompletionQueue& queue_;
  const CallQueues::Stay stay_;
  CallContext context_;
  Request request_;
  Response response_;
  typename Method::Writer writer_{&context_};
  Step arrived_{[this](bool ok) { arrived(ok); }};
  Step answered_{[this](bool) { end(); }};
  Step over_{[this](bool) { over(); }};
  int steps_left_ = 2;  // of these two, on one thread
};

}  // namespace kserve
