// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One ModelStreamInfer: requests are scored as they come, and answered as they are ready.

#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <utility>

#include "call_queues.hpp"
#include "inference.grpc.pb.h"
#include "unary_call.hpp"

namespace kserve {

/// Reads no further while `most_under_way` of its requests are unanswered, so that a client who sends faster than it
/// reads takes no more memory than these. Deletes itself when the stream is over and all is answered.
class InferStream {
 public:
  using Service = inference::GRPCInferenceService::AsyncService;
  using Done = std::function<void(const grpc::Status&)>;
  /// Scores a request, and calls back once, from this thread or another.
  using Score =
      std::function<void(CallContext&, const inference::ModelInferRequest&, inference::ModelInferResponse&, Done)>;

  /// Waits for a client, and so again whenever one has come.
  static void await(Service& service, const Score& score, CallQueues& queues, grpc::ServerCompletionQueue& queue) {
    auto* const stream = new InferStream(service, score, queues, queue);
    stream->context_.AsyncNotifyWhenDone(&stream->gone_);
    service.RequestModelStreamInfer(&stream->context_, &stream->stream_, &queue, &queue, &stream->arrived_);
  }

 private:
  static constexpr size_t most_under_way = 64;

  struct Call {
    inference::ModelInferRequest request;
    inference::ModelStreamInferResponse response;
    bool is_answered = false;
  };

  InferStream(Service& service, const Score& score, CallQueues& queues, grpc::ServerCompletionQueue& queue)
      : service_(service), score_(score), queues_(queues), queue_(queue), stay_(queues) {}

  void arrived(bool ok) {
    if (!ok) return delete this;  // the server shuts down, and nothing follows
    await(service_, score_, queues_, queue_);
    go_on(std::unique_lock<std::mutex>(mutex_));
  }
  void was_read(bool ok) {
    Call* call = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_reading_ = false;
      if (!ok) {
        is_over_ = true;
      } else {
        call = &calls_.emplace_back();
        call->request.Swap(&next_);
      }
    }
    if (call != nullptr)
      score_(context_, call->request, *call->response.mutable_infer_response(),
             [this, call](const grpc::Status& status) {
               if (!status.ok()) {
                 call->response.clear_infer_response();
                 call->response.set_error_message(status.error_message());
                 call->response.mutable_infer_response()->set_id(call->request.id());
               }
               std::unique_lock<std::mutex> lock(mutex_);
               call->is_answered = true;
               go_on(std::move(lock));
             });
    go_on(std::unique_lock<std::mutex>(mutex_));
  }
  void was_written(bool ok) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!ok) is_broken_ = true;
    calls_.erase(writing_);
    is_writing_ = false;
    go_on(std::move(lock));
  }

  /// Its client has all answers, or has gone.
  void gone() {
    if (context_.IsCancelled() && context_.cancelled) context_.cancelled();
    end();
  }
  void end() {
    if (--steps_left_ == 0) delete this;
  }

  /// Starts what can be started. After it the stream may be gone.
  void go_on(std::unique_lock<std::mutex> lock) {
    if (is_finished_) return;
    if (is_broken_ && !is_writing_) calls_.remove_if([](const Call& call) { return call.is_answered; });
    if (!is_writing_ && !is_broken_)
      for (auto call = calls_.begin(); call != calls_.end(); ++call) {
        if (!call->is_answered) continue;
        writing_ = call;
        is_writing_ = true;
        stream_.Write(call->response, &written_);
        break;
      }
    if (!is_reading_ && !is_over_ && calls_.size() < most_under_way) {
      is_reading_ = true;
      next_.Clear();
      stream_.Read(&next_, &read_);
    }
    if (!is_over_ || !calls_.empty()) return;
    is_finished_ = true;
    lock.unlock();  // which Finish leads to the end of
    stream_.Finish(grpc::Status::OK, &finished_);
  }

  Service& service_;
  const Score& score_;
  CallQueues& queues_;
  grpc::ServerCompletionQueue& queue_;
  const CallQueues::Stay stay_;
  CallContext context_;
  grpc::ServerAsyncReaderWriter<inference::ModelStreamInferResponse, inference::ModelInferRequest> stream_{&context_};
  Step arrived_{[this](bool ok) { arrived(ok); }};
  Step read_{[this](bool ok) { was_read(ok); }};
  Step written_{[this](bool ok) { was_written(ok); }};
  Step finished_{[this](bool) { end(); }};
  Step gone_{[this](bool) { gone(); }};
  int steps_left_ = 2;  // of these two, on one thread

  std::mutex mutex_;  // what follows
  inference::ModelInferRequest next_;
  std::list<Call> calls_;
  std::list<Call>::iterator writing_;
  bool is_reading_ = false, is_writing_ = false, is_over_ = false, is_broken_ = false, is_finished_ = false;
};

}  // namespace kserve
