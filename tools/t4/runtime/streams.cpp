// SPDX-License-Identifier: Apache-2.0
//
// The runtime's calls about streams, events and captures.

#include "runtime/runtime.hpp"

namespace t4 { namespace {

Event& as_event(cudaEvent_t handle) { return *reinterpret_cast<Event*>(handle); }

cudaError_t create_stream(cudaStream_t* handle) {
  auto stream = std::make_unique<Stream>();
  *handle = reinterpret_cast<cudaStream_t>(stream.get());
  Runtime::get().streams[stream.get()] = std::move(stream);
  return cudaSuccess;
}

/// Of a stream that is being captured nobody may ask whether it is done.
cudaError_t wait(cudaStream_t handle) {
  return Runtime::get().stream(handle).capture ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

}}  // namespace t4

using t4::Runtime;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return Runtime::get().call([&] { return t4::create_stream(stream); });
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return Runtime::get().call([&] {
    Runtime::get().streams.erase(reinterpret_cast<const t4::Stream*>(stream));
    return cudaSuccess;
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Runtime::get().call([&] { return t4::wait(stream); });
}
cudaError_t cudaStreamGetDevice(cudaStream_t, int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

// ---- Events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new t4::Event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<t4::Event*>(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Runtime::get().call([&] {
    t4::as_event(event).capture = Runtime::get().stream(stream).capture;
    t4::as_event(event).microseconds = Runtime::get().timer.microseconds();
    return cudaSuccess;
  });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Runtime::get().call(
      [&] { return t4::as_event(event).capture ? cudaErrorStreamCaptureUnsupported : cudaSuccess; });
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return Runtime::get().call([&] {
    *milliseconds = static_cast<float>((t4::as_event(end).microseconds - t4::as_event(begin).microseconds) * 1e-3);
    return cudaSuccess;
  });
}
/// A stream that waits for an event of a capture belongs to the capture from then on.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return Runtime::get().call([&] {
    const std::shared_ptr<t4::Capture>& capture = t4::as_event(event).capture;
    if (capture && capture->graph) Runtime::get().stream(stream).capture = capture;
    return cudaSuccess;
  });
}

// ---- Captures

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  return Runtime::get().call([&] {
    t4::Stream& stream = Runtime::get().stream(handle);
    if (handle == nullptr || stream.capture) return cudaErrorIllegalState;
    stream.capture = std::make_shared<t4::Capture>();
    stream.capture->origin = handle;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return Runtime::get().call([&] {
    *graph = nullptr;
    const std::shared_ptr<t4::Capture> capture = Runtime::get().stream(handle).capture;
    if (!capture || capture->origin != handle) return cudaErrorIllegalState;
    for (auto& [key, stream] : Runtime::get().streams)
      if (stream->capture == capture) stream->capture.reset();
    *graph = reinterpret_cast<cudaGraph_t>(capture->graph.release());
    return cudaSuccess;
  });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return Runtime::get().call([&] {
    const bool captures = Runtime::get().stream(handle).capture != nullptr;
    *status = captures ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
  });
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
}
