// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One ModelStreamInfer: requests are scored as they come, and answered as they are ready.

#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <utility>

#include "inference.pb.h"

namespace kserve {

/// Reads no further while `most_under_way` of its requests are unanswered, so that a client who sends faster than it
/// reads takes no more memory than these. Deletes itself when the stream is over and all is answered.
class InferStream final
    : public grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse> {
 public:
  /// Scores a request, and calls back once, by this thread or another.
  using Score = std::function<void(const inference::ModelInferRequest&, inference::ModelInferResponse&,
                                   std::function<void(grpc::Status)>)>;

  InferStream(Score score, size_t most_under_way) : score_(std::move(score)), most_under_way_(most_under_way) {
    StartRead(&next_);
  }

  void OnReadDone(bool ok) override {
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
      score_(call->request, *call->response.mutable_infer_response(), [this, call](const grpc::Status& status) {
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
  void OnWriteDone(bool ok) override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!ok) is_broken_ = true;
    calls_.erase(written_);
    is_writing_ = false;
    go_on(std::move(lock));
  }
  void OnDone() override { delete this; }

 private:
  struct Call {
    inference::ModelInferRequest request;
    inference::ModelStreamInferResponse response;
    bool is_answered = false;
  };

  /// Starts what can be started. After it the stream may be gone.
  void go_on(std::unique_lock<std::mutex> lock) {
    if (is_finished_) return;
    if (is_broken_ && !is_writing_) calls_.remove_if([](const Call& call) { return call.is_answered; });
    if (!is_writing_ && !is_broken_)
      for (auto call = calls_.begin(); call != calls_.end(); ++call) {
        if (!call->is_answered) continue;
        written_ = call;
        is_writing_ = true;
        StartWrite(&call->response);
        break;
      }
    if (!is_reading_ && !is_over_ && calls_.size() < most_under_way_) {
      is_reading_ = true;
      next_.Clear();
      StartRead(&next_);
    }
    if (!is_over_ || !calls_.empty()) return;
    is_finished_ = true;
    lock.unlock();  // which Finish leads to the end of
    Finish(grpc::Status::OK);
  }

  const Score score_;
  const size_t most_under_way_;
  std::mutex mutex_;  // what follows
  inference::ModelInferRequest next_;
  std::list<Call> calls_;
  std::list<Call>::iterator written_;
  bool is_reading_ = true, is_writing_ = false, is_over_ = false, is_broken_ = false, is_finished_ = false;
};

}  // namespace kserve
