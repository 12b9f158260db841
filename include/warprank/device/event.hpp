// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Places in streams that the host or other streams wait for.

#include <memory>

#include "warprank/core/on_cuda.hpp"
#include "warprank/device/backend.hpp"

namespace warprank { inline namespace v0 { namespace device {

#if !defined(WARPRANK_ON_CUDA)
namespace backend {

// The executor defines these.
using Event = std::shared_ptr<void>;
Event create_event();
void record_event(const Event& event, Stream stream);
void wait_event(const Event& event, Stream stream);
bool event_done(const Event& event);
void wait_for_event(const Event& event);
void run_until_event(const Event& event);

}  // namespace backend
#else
namespace backend {

using Event = std::shared_ptr<CUevent_st>;

WARPRANK_HIDDEN inline Event create_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "create an event");
  return {event, [](cudaEvent_t e) { cudaEventDestroy(e); }};
}
WARPRANK_HIDDEN inline void record_event(const Event& event, cudaStream_t stream) {
  check_cuda(cudaEventRecord(event.get(), stream), "record an event");
}
WARPRANK_HIDDEN inline void wait_event(const Event& event, cudaStream_t stream) {
  check_cuda(cudaStreamWaitEvent(stream, event.get(), 0), "wait for an event");
}
WARPRANK_HIDDEN inline bool event_done(const Event& event) {
  const cudaError_t code = cudaEventQuery(event.get());
  if (code != cudaErrorNotReady) check_cuda(code, "ask whether an event is done");
  return code == cudaSuccess;
}
WARPRANK_HIDDEN inline void wait_for_event(const Event& event) {
  check_cuda(cudaEventSynchronize(event.get()), "wait for an event");
}

WARPRANK_HIDDEN inline void run_until_event(const Event&) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace backend
#endif

/// A place in a stream: behind all work that was queued before `record`.
class Event {
 public:
  Event() : event_(backend::create_event()) {}

  void record(backend::Stream stream) { backend::record_event(event_, stream); }
  /// Work that is queued in `stream` from now on starts after the work before the last recorded place.
  void wait_in(backend::Stream stream) const { backend::wait_event(event_, stream); }
  /// Whether the work before the last recorded place is done, and its writes are visible to the host and to later
  /// launches. Does not wait; true if no place was recorded.
  bool is_done() const { return backend::event_done(event_); }
  /// For loops of the host that poll values that the device writes before the place: lets the processor rest for some
  /// cycles. An executor, which runs nothing by itself, runs the work before the place.
  void relax() const { backend::run_until_event(event_); }
  /// Waits until is_done(), and keeps a core busy: an interrupt would take at least 20 us longer. Throws the errors of
  /// the work before the place.
  void synchronize() const { backend::wait_for_event(event_); }

 private:
  backend::Event event_;
};

}}}  // namespace warprank::v0::device
