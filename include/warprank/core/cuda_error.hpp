// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Errors of the CUDA runtime. Plain C++: callers of the library catch them without the CUDA toolkit.

#include <cstdint>
#include <stdexcept>
#include <string>

#include "warprank/core/error.hpp"
#include "warprank/core/on_cuda.hpp"
#if defined(WARPRANK_ON_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace warprank { inline namespace v0 {

/// Thrown when a call of the CUDA runtime fails, with the attempted operation, the runtime's code and its name.
class cuda_error : public detail::error_of<std::runtime_error> {
 public:
  cuda_error(const std::string& what, int code, const std::string& name)
      : error_of(what + ": CUDA error " + std::to_string(code) + " (" + name + ")"), code_(code) {}

  int code() const { return code_; }

 private:
  int code_;
};

/// Thrown when a device has too little memory.
class out_of_device_memory : public detail::error_of<std::runtime_error> {
 public:
  out_of_device_memory(const std::string& what, int64_t needed_bytes, int64_t free_bytes, int64_t total_bytes)
      : error_of(what + ": expected " + std::to_string(needed_bytes) + " bytes of device memory, got " +
                 std::to_string(free_bytes) + " free of " + std::to_string(total_bytes)),
        needed_bytes_(needed_bytes),
        free_bytes_(free_bytes) {}

  int64_t needed_bytes() const { return needed_bytes_; }
  int64_t free_bytes() const { return free_bytes_; }

 private:
  int64_t needed_bytes_, free_bytes_;
};

#if defined(WARPRANK_ON_CUDA)
/// Throws cuda_error unless the call succeeded. The runtime forgets the error, so that no later call finds it again.
inline void check_cuda(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  raise(cuda_error(what, static_cast<int>(code), cudaGetErrorName(code)));
}
#endif

}}  // namespace warprank::v0
