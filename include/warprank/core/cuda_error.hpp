// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the CUDA runtime refused. Plain C++: callers of the library catch it without the CUDA toolkit.

#include <stdexcept>
#include <string>

namespace warprank {

/// Thrown when a call of the CUDA runtime fails: what was being done, the runtime's code and its name.
class cuda_error : public std::runtime_error {
 public:
  cuda_error(const std::string& what, int code, const std::string& name)
      : std::runtime_error(what + ": CUDA error " + std::to_string(code) + " (" + name + ")"), code_(code) {}

  int code() const { return code_; }

 private:
  int code_;
};

#if defined(__CUDACC__)
/// Throws cuda_error unless the call succeeded.
inline void check_cuda(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw cuda_error(what, static_cast<int>(code), cudaGetErrorName(code));
}
#endif

}  // namespace warprank
