// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the examples of primitives take of the CUDA runtime, on the executor: their files are compiled as they are.

#include <cstddef>

#include "simt/runtime.hpp"

using cudaStream_t = simt::Stream;
using cudaGraph_t = simt::Graph;
using cudaGraphExec_t = simt::Graph;

enum cudaError_t { cudaSuccess };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };

inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }

inline cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = simt::allocate(static_cast<int64_t>(bytes));
  return cudaSuccess;
}
inline cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  simt::fill(to, static_cast<unsigned char>(value), static_cast<int64_t>(bytes));
  simt::synchronize();
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  simt::copy(to, from, static_cast<int64_t>(bytes));
  simt::synchronize();
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  simt::copy(to, from, static_cast<int64_t>(bytes), stream);
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = simt::create_stream();
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  simt::synchronize(stream);
  return cudaSuccess;
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  simt::begin_capture(stream);
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = simt::end_capture(stream);
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long /*flags*/) {
  *executable = graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  simt::launch(graph, stream);
  return cudaSuccess;
}
