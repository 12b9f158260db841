// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The threads of gRPC's calls. Each polls a completion queue of its own and does at once what follows from what it
/// finds there. (With gRPC's callback API two or more threads take turns to poll one queue, and wake one another at
/// each step of a call: that took the server about twice the processor time of a call.)

#include <grpcpp/completion_queue.h>
#include <grpcpp/server_builder.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace kserve {

/// What follows when something that was begun on a queue is over; `ok` is false where it did not come about. Its
/// address is the tag.
struct Step {
  std::function<void(bool ok)> then;
};

class CallQueues {
 public:
  /// Before the server is built.
  CallQueues(grpc::ServerBuilder& builder, int count) {
    for (int i = 0; i < count; ++i) queues_.push_back(builder.AddCompletionQueue());
  }
  ~CallQueues() { drain(); }
  CallQueues(const CallQueues&) = delete;
  CallQueues& operator=(const CallQueues&) = delete;

  const std::vector<std::unique_ptr<grpc::ServerCompletionQueue>>& list() const { return queues_; }

  /// When the server is built, and first calls wait for clients.
  void start() {
    for (const auto& queue : queues_) threads_.emplace_back([&queue = *queue] { poll(queue); });
  }
  /// When the server has shut down: returns when all calls have ended.
  void drain() {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      ended_.wait(lock, [&] { return num_calls_ == 0; });
    }
    for (const auto& queue : queues_) queue->Shutdown();
    if (threads_.empty())
      for (const auto& queue : queues_) poll(*queue);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    queues_.clear();
  }

  /// Member of a call, for as long as that has steps to come.
  class Stay {
   public:
    explicit Stay(CallQueues& queues) : queues_(queues) {
      const std::lock_guard<std::mutex> lock(queues_.mutex_);
      ++queues_.num_calls_;
    }
    ~Stay() {
      const std::lock_guard<std::mutex> lock(queues_.mutex_);
      if (--queues_.num_calls_ == 0) queues_.ended_.notify_all();
    }
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

   private:
    CallQueues& queues_;
  };

 private:
  static void poll(grpc::ServerCompletionQueue& queue) {
    void* tag = nullptr;
    for (bool ok = false; queue.Next(&tag, &ok);) static_cast<Step*>(tag)->then(ok);
  }

  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable ended_;
  int64_t num_calls_ = 0;  // mutex_'s
};

}  // namespace kserve
