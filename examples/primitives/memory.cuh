// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Memory of the device for the examples beside this: plain CUDA, which a service has its own of. It is the process's.

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <type_traits>
#include <vector>

inline void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

/// Zeros.
template <class Value>
Value* allocate(int64_t count) {
  void* memory = nullptr;
  const size_t bytes = static_cast<size_t>(count) * sizeof(Value);
  check(cudaMalloc(&memory, bytes));
  check(cudaMemset(memory, 0, bytes));
  return static_cast<Value*>(memory);
}

template <class Values>
auto* on_device(const Values& values) {
  using Value = std::remove_const_t<std::remove_reference_t<decltype(*values.data())>>;
  auto* const to = allocate<Value>(static_cast<int64_t>(values.size()));
  check(cudaMemcpy(to, values.data(), static_cast<size_t>(values.size()) * sizeof(Value), cudaMemcpyHostToDevice));
  return to;
}

/// Waits for the stream.
template <class Value>
std::vector<Value> on_host(const Value* from, int64_t count, cudaStream_t stream) {
  std::vector<Value> values(static_cast<size_t>(count));
  check(cudaMemcpyAsync(values.data(), from, values.size() * sizeof(Value), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  return values;
}

/// Adds 1 to `failures` and says so when they differ by more than `error`.
inline void expect_near(const char* what, double got, double expected, double error, int& failures) {
  if (std::fabs(got - expected) <= error) return;
  std::printf("%s: expected %g, got %g\n", what, expected, got);
  ++failures;
}
