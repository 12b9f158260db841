// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What simt/runtime.hpp has, from the CUDA runtime. For kernel_testing.hpp.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "simt/config.hpp"
#include "warprank/core/cuda_error.hpp"

namespace kernel_testing {

using warprank::check_cuda;

// ---- Memory: between two guards, whose bytes tell when something was written there

namespace detail {

inline constexpr int64_t guard_bytes = 256;  // and so the memory is aligned as cudaMalloc's
inline constexpr unsigned char guard_value = 0xa5, unwritten_value = 0xff;

inline std::map<const void*, int64_t>& allocations() {
  static std::map<const void*, int64_t> all;
  return all;
}

}  // namespace detail

inline void* allocate(int64_t bytes) {
  unsigned char* memory = nullptr;
  check_cuda(cudaMalloc(&memory, static_cast<size_t>(bytes + 2 * detail::guard_bytes)), "allocate memory");
  unsigned char* address = memory + detail::guard_bytes;
  check_cuda(cudaMemset(memory, detail::guard_value, detail::guard_bytes), "write a guard");
  check_cuda(cudaMemset(address, detail::unwritten_value, static_cast<size_t>(bytes)), "fill memory");
  check_cuda(cudaMemset(address + bytes, detail::guard_value, detail::guard_bytes), "write a guard");
  check_cuda(cudaStreamSynchronize(nullptr), "fill memory");  // for the streams that do not wait for this one
  detail::allocations()[address] = bytes;
  return address;
}

inline void expect_guards_untouched(const void* address) {
  const int64_t bytes = detail::allocations().at(address);
  const auto* begin = static_cast<const unsigned char*>(address);
  for (const unsigned char* guard : {begin - detail::guard_bytes, begin + bytes}) {
    std::vector<unsigned char> found(detail::guard_bytes);
    check_cuda(cudaMemcpy(found.data(), guard, found.size(), cudaMemcpyDeviceToHost), "read a guard");
    EXPECT_EQ(found, std::vector<unsigned char>(detail::guard_bytes, detail::guard_value))
        << "written " << (guard < begin ? "before" : "behind") << " memory of " << bytes << " bytes";
  }
}

/// For destructors: throws nothing, also when a kernel has left the device unusable.
inline void release(void* address) {
  if (cudaDeviceSynchronize() == cudaSuccess) expect_guards_untouched(address);
  detail::allocations().erase(address);
  cudaFree(static_cast<unsigned char*>(address) - detail::guard_bytes);
}

inline void copy(void* to, const void* from, int64_t bytes, cudaStream_t stream = nullptr) {
  check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream), "copy");
}
inline void fill(void* to, unsigned char value, int64_t bytes, cudaStream_t stream = nullptr) {
  check_cuda(cudaMemsetAsync(to, value, static_cast<size_t>(bytes), stream), "fill memory");
}

// ---- Streams and events

namespace detail {

struct StreamDeleter {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
inline auto& streams() {
  static std::vector<std::unique_ptr<CUstream_st, StreamDeleter>> all;
  return all;
}

}  // namespace detail

inline cudaStream_t create_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
  detail::streams().emplace_back(stream);
  return stream;
}
inline void synchronize(cudaStream_t stream) { check_cuda(cudaStreamSynchronize(stream), "wait for a stream"); }
inline void synchronize() { check_cuda(cudaDeviceSynchronize(), "wait for the device"); }

/// What the executor does with its settings the GPU does by itself.
inline void reset(const simt::Config& = {}) {
  synchronize();
  detail::streams().clear();
}

using Event = std::shared_ptr<CUevent_st>;
inline Event create_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "create an event");
  return {event, [](cudaEvent_t last) { cudaEventDestroy(last); }};
}
inline void record(const Event& event, cudaStream_t stream) {
  check_cuda(cudaEventRecord(event.get(), stream), "record an event");
}
inline void wait(cudaStream_t stream, const Event& event) {
  check_cuda(cudaStreamWaitEvent(stream, event.get(), 0), "make a stream wait");
}
inline bool is_done(const Event& event) {
  const cudaError_t code = cudaEventQuery(event.get());
  if (code != cudaErrorNotReady) check_cuda(code, "ask for an event");
  return code == cudaSuccess;
}
inline void synchronize(const Event& event) { check_cuda(cudaEventSynchronize(event.get()), "wait for an event"); }

// ---- Graphs

struct GraphState {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;

  GraphState() = default;
  GraphState(const GraphState&) = delete;
  GraphState& operator=(const GraphState&) = delete;
  ~GraphState() {
    if (executable != nullptr) cudaGraphExecDestroy(executable);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
};
using Graph = std::shared_ptr<GraphState>;

inline void begin_capture(cudaStream_t stream) {
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin a capture");
}
inline Graph end_capture(cudaStream_t stream) {
  auto captured = std::make_shared<GraphState>();
  check_cuda(cudaStreamEndCapture(stream, &captured->graph), "end a capture");
  check_cuda(cudaGraphInstantiateWithFlags(&captured->executable, captured->graph, 0), "instantiate a graph");
  return captured;
}
inline int num_launches(const Graph& graph) {
  size_t count = 0;
  check_cuda(cudaGraphGetNodes(graph->graph, nullptr, &count), "count nodes");
  std::vector<cudaGraphNode_t> nodes(count);
  check_cuda(cudaGraphGetNodes(graph->graph, nodes.data(), &count), "list nodes");
  int launches = 0;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    check_cuda(cudaGraphNodeGetType(node, &type), "find the type of a node");
    launches += type == cudaGraphNodeTypeKernel;
  }
  return launches;
}
inline void launch(const Graph& graph, cudaStream_t stream) {
  check_cuda(cudaGraphLaunch(graph->executable, stream), "launch a graph");
}

// ---- Counters

/// Only the executor counts: what needs its counts stands under `if constexpr (!on_gpu)`, or does not compile.
__attribute__((error("only the executor counts: ask `if constexpr (!on_gpu)`"))) const simt::Counters& counters();
inline void clear_counters() {}

}  // namespace kernel_testing
