// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The runtime, by CUDA's runtime. Documented where it is public, in runtime.hpp, owned_memory.hpp and devices.hpp.

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "warprank/core/cuda_error.hpp"
#include "warprank/core/page_pool.hpp"
#include "warprank/device/backend.hpp"
#include "warprank/device/device_info.hpp"

namespace warprank { inline namespace v0 { namespace device::backend::runtime {

// ---- Devices

WARPRANK_HIDDEN inline int num_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}
WARPRANK_HIDDEN inline int current_device() {
  int index = 0;
  check_cuda(cudaGetDevice(&index), "find the current device");
  return index;
}
WARPRANK_HIDDEN inline int set_device(int index) {
  const int before = current_device();
  if (index != before) check_cuda(cudaSetDevice(index), "use a device");
  return before;
}
/// For destructors.
WARPRANK_HIDDEN inline void restore_device(int index) { cudaSetDevice(index); }
/// Waits for the device and calls `last()` with it as the current one. For destructors: if the driver is gone by then,
/// as when a process ends, its errors are ignored.
template <class Last>
WARPRANK_HIDDEN void finish(int index, const Last& last) {
  int before = index;
  cudaGetDevice(&before);
  if (index != before) cudaSetDevice(index);
  cudaDeviceSynchronize();
  last();
  if (index != before) cudaSetDevice(before);
}

WARPRANK_HIDDEN inline std::pair<int64_t, int64_t> free_and_total_bytes() {
  size_t free_bytes = 0, total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "ask for free memory");
  return {static_cast<int64_t>(free_bytes), static_cast<int64_t>(total_bytes)};
}
WARPRANK_HIDDEN inline DeviceInfo current_device_info() {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, current_device()), "describe a device");
  DeviceInfo info;
  info.name = properties.name;
  info.target = backend::target();
  info.multiprocessors = properties.multiProcessorCount;
  std::tie(info.free_bytes, info.total_bytes) = free_and_total_bytes();
  check_cuda(cudaDriverGetVersion(&info.driver_version), "find the driver's version");
  check_cuda(cudaRuntimeGetVersion(&info.runtime_version), "find the runtime's version");
  return info;
}

// ---- Memory

WARPRANK_HIDDEN inline void* allocate(int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t code = cudaMalloc(&memory, static_cast<size_t>(bytes));
  if (code != cudaErrorMemoryAllocation) check_cuda(code, "allocate memory of a device");
  if (code != cudaSuccess) cudaGetLastError();
  return memory;
}
WARPRANK_HIDDEN inline void release(void* memory) { cudaFree(memory); }

WARPRANK_HIDDEN inline void* allocate_pinned(int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t code = cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocPortable);
  if (code != cudaErrorMemoryAllocation) check_cuda(code, "allocate pinned memory");
  if (code != cudaSuccess) cudaGetLastError();
  return memory;
}
WARPRANK_HIDDEN inline void release_pinned(void* memory) { cudaFreeHost(memory); }
WARPRANK_HIDDEN inline cudaPointerAttributes attributes_of(const void* memory) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) == cudaSuccess) return attributes;
  cudaGetLastError();
  return {};
}
WARPRANK_HIDDEN inline bool can_read(const void* memory) {
  return memory != nullptr && attributes_of(memory).devicePointer == memory;
}
WARPRANK_HIDDEN inline bool is_on_device(const void* memory) {
  const cudaPointerAttributes attributes = attributes_of(memory);
  return attributes.type == cudaMemoryTypeManaged ||
         (attributes.type == cudaMemoryTypeDevice && attributes.device == current_device());
}

WARPRANK_HIDDEN inline bool is_of_current_device([[maybe_unused]] Stream stream) {
#if CUDART_VERSION >= 12080
  int index = 0;
  if (cudaStreamGetDevice(stream, &index) == cudaSuccess) return index == current_device();
  cudaGetLastError();  // a driver that is older than the runtime
#endif
  return true;
}

/// Registers pages of the system, which makes them huge pages if it may. If a device would have another address for
/// these pages, takes memory of the runtime instead.
WARPRANK_HIDDEN inline std::shared_ptr<void> allocate_mapped(int64_t bytes) {
  const auto pages = std::make_shared<warprank::detail::PageBlock>(bytes);
  void* const data = pages->data();
  const cudaError_t code =
      cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterMapped | cudaHostRegisterPortable);
  if (code != cudaErrorMemoryAllocation) check_cuda(code, "pin memory");
  if (code != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  std::shared_ptr<void> memory(data, [pages](void* registered) { cudaHostUnregister(registered); });
  void* on_device = nullptr;
  check_cuda(cudaHostGetDevicePointer(&on_device, data, 0), "map memory of the host");
  if (on_device == data) return memory;
  return {allocate_pinned(bytes), release_pinned};
}
/// Launches that read the memory come later.
WARPRANK_HIDDEN inline void write_mapped(void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

// ---- Streams

WARPRANK_HIDDEN inline void copy_to_device(void* to, const void* from, int64_t bytes, Stream stream) {
  check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream), "copy to a device");
}
WARPRANK_HIDDEN inline void copy_to_host(void* to, const void* from, int64_t bytes, Stream stream) {
  check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream),
             "copy from a device");
}
WARPRANK_HIDDEN inline void copy_on_device(void* to, const void* from, int64_t bytes, Stream stream) {
  check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream),
             "copy on a device");
}
WARPRANK_HIDDEN inline void fill(void* to, unsigned char value, int64_t bytes, Stream stream) {
  check_cuda(cudaMemsetAsync(to, value, static_cast<size_t>(bytes), stream), "fill memory");
}
WARPRANK_HIDDEN inline void synchronize(Stream stream) {
  check_cuda(cudaStreamSynchronize(stream), "wait for a stream");
}

using OwnedStream = std::shared_ptr<CUstream_st>;
WARPRANK_HIDDEN inline OwnedStream create_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
  return {stream, [](cudaStream_t last) { cudaStreamDestroy(last); }};
}

// ---- Graphs

struct GraphState {
  cudaGraphExec_t executable = nullptr;
  cudaGraph_t captured = nullptr;  // has the nodes of `kernels`
  int num_nodes = 0, num_kernels = 0;
  std::vector<std::pair<cudaGraphNode_t, cudaKernelNodeParams>> kernels;  // without those of other libraries

  GraphState() = default;
  ~GraphState() {
    if (executable != nullptr) cudaGraphExecDestroy(executable);
    if (captured != nullptr) cudaGraphDestroy(captured);
  }
  GraphState(const GraphState&) = delete;
  GraphState& operator=(const GraphState&) = delete;
};
using Graph = std::shared_ptr<const GraphState>;

/// The nodes of a graph, before it can be launched.
using GraphTemplate = std::unique_ptr<CUgraph_st, void (*)(cudaGraph_t)>;

WARPRANK_HIDDEN inline cudaError_t finish_capture(Stream stream, GraphTemplate& nodes) {
  cudaGraph_t captured = nullptr;
  const cudaError_t code = cudaStreamEndCapture(stream, &captured);
  nodes = {captured, [](cudaGraph_t last) { cudaGraphDestroy(last); }};
  return code;
}
WARPRANK_HIDDEN inline void begin_capture(Stream stream) {
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin a capture");
}
WARPRANK_HIDDEN inline void discard_capture(Stream stream) {
  GraphTemplate nodes{nullptr, nullptr};
  if (finish_capture(stream, nodes) != cudaSuccess) cudaGetLastError();
}
WARPRANK_HIDDEN inline Graph end_capture(Stream stream) {
  GraphTemplate captured{nullptr, nullptr};
  check_cuda(finish_capture(stream, captured), "end a capture");
  size_t count = 0;
  check_cuda(cudaGraphGetNodes(captured.get(), nullptr, &count), "count the nodes of a graph");
  std::vector<cudaGraphNode_t> nodes(count);
  check_cuda(cudaGraphGetNodes(captured.get(), nodes.data(), &count), "list the nodes of a graph");
  auto graph = std::make_shared<GraphState>();
  graph->num_nodes = static_cast<int>(count);
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    check_cuda(cudaGraphNodeGetType(node, &type), "find the type of a node");
    if (type != cudaGraphNodeTypeKernel) continue;
    ++graph->num_kernels;
    cudaKernelNodeParams params{};
    if (cudaGraphKernelNodeGetParams(node, &params) == cudaSuccess) {
      graph->kernels.emplace_back(node, params);
    } else {
      cudaGetLastError();  // cuBLASLt's, which the runtime does not know
    }
  }
  check_cuda(cudaGraphInstantiateWithFlags(&graph->executable, captured.get(), 0), "instantiate a graph");
  // Otherwise the first launch would upload it, and allocate.
  check_cuda(cudaGraphUpload(graph->executable, stream), "upload a graph");
  graph->captured = captured.release();
  return graph;
}
WARPRANK_HIDDEN inline void launch_graph(const Graph& graph, Stream stream) {
  check_cuda(cudaGraphLaunch(graph->executable, stream), "launch a graph");
}
template <class... Params>
WARPRANK_HIDDEN inline void set_arguments(const Graph& graph, void (*kernel)(Params...), Params... args) {
  void* arguments[] = {static_cast<void*>(&args)..., nullptr};
  for (const auto& [node, captured] : graph->kernels) {
    if (captured.func != reinterpret_cast<const void*>(kernel)) continue;
    cudaKernelNodeParams params = captured;
    params.kernelParams = arguments;
    params.extra = nullptr;
    check_cuda(cudaGraphExecKernelNodeSetParams(graph->executable, node, &params), "set the arguments of a kernel");
  }
}
WARPRANK_HIDDEN inline int num_nodes(const Graph& graph) { return graph->num_nodes; }
WARPRANK_HIDDEN inline int num_kernels(const Graph& graph) { return graph->num_kernels; }

}}}  // namespace warprank::v0::device::backend::runtime
