// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the calls of the CUDA runtime share. Work is done when it is queued: the streams' order is the host's.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "execute/launch.hpp"
#include "runtime/graph.hpp"
#include "runtime/images.hpp"
#include "runtime/timer.hpp"

namespace t4 {

struct Kernel {
  Image* image = nullptr;
  std::string name;
  Function* function = nullptr;  ///< once it was looked for
  int most_dynamic_shared_bytes = 48 * 1024;
};

struct Stream {
  std::shared_ptr<Capture> capture;  ///< null: what it gets is done at once
};
struct Event {
  double microseconds = 0;           ///< of the device's time, when it was recorded
  std::shared_ptr<Capture> capture;  ///< in which it was recorded last
};

class Runtime {
 public:
  static Runtime& get();

  /// What a call of the runtime does, under a lock. Errors become codes, and those of kernels stay.
  cudaError_t call(const std::function<cudaError_t()>& function);
  cudaError_t take_last_error(bool forgets);

  // ---- Code
  Image* add_image(const void* wrapper);
  void add_kernel(Image* image, const void* host, const char* name) { kernels_[host] = {image, name}; }
  void add_variable(Image* image, const void* host, const char* name) { variables_[host] = {image, name}; }
  /// Null where the program has none; its function is there.
  Kernel* find_kernel(const void* host);
  Variable find_variable(const void* host);
  cudaError_t check_launch(const Kernel& kernel, Dim3 grid, Dim3 block, uint64_t dynamic_shared_bytes) const;

  // ---- Work
  /// Done at once, or a node of the graph that the stream captures.
  void queue(cudaStream_t stream, Node node);
  void run(const Node& node);
  Stream& stream(cudaStream_t handle);

  Allocations memory;
  uint64_t allocated_bytes = 0;
  std::map<const void*, uint64_t> sizes;  ///< of what was allocated
  std::map<const Stream*, std::unique_ptr<Stream>> streams;
  Timer timer;

 private:
  std::recursive_mutex mutex_;
  std::vector<std::unique_ptr<Image>> images_;
  std::unordered_map<const void*, Kernel> kernels_;
  std::unordered_map<const void*, std::pair<Image*, std::string>> variables_;
  Stream default_stream_;
  cudaError_t last_ = cudaSuccess;
  cudaError_t broken_ = cudaSuccess;  ///< after a kernel has failed every call does
};

}  // namespace t4
