// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Records launches instead of queueing them, to find out whether a captured graph also fits launches that were
/// prepared anew.
///
/// Arguments with padding or floats cannot be compared by their bytes, and are left out. So a struct that a kernel
/// takes by value holds only values that the plan and addresses determine; other values, which differ between models,
/// are in device memory.

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "warprank/device/backend.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// One launch: kernel, grid, block, dynamic shared memory, and the arguments whose bytes tell whether they are equal.
struct RecordedLaunch {
  std::vector<int64_t> shape;
  std::vector<unsigned char> arguments;

  /// "7 blocks of 256 threads, 27136 bytes of shared memory"
  std::string to_string() const {
    std::string blocks = std::to_string(shape[1]);
    if (shape[2] > 1 || shape[3] > 1) blocks += " x " + std::to_string(shape[2]) + " x " + std::to_string(shape[3]);
    return blocks + " blocks of " + std::to_string(shape[4] * shape[5] * shape[6]) + " threads, " +
           std::to_string(shape[7]) + " bytes of shared memory";
  }
  friend bool operator==(const RecordedLaunch& a, const RecordedLaunch& b) {
    return a.shape == b.shape && a.arguments == b.arguments;
  }
};

/// While an object of this class exists, launches of its thread are recorded and not queued. One at a time in a thread.
class WARPRANK_HIDDEN LaunchRecorder {
 public:
  LaunchRecorder() { current() = this; }
  ~LaunchRecorder() { current() = nullptr; }
  LaunchRecorder(const LaunchRecorder&) = delete;
  LaunchRecorder& operator=(const LaunchRecorder&) = delete;

  /// Null: launches are queued.
  static LaunchRecorder*& current() {
    static thread_local LaunchRecorder* recorder = nullptr;
    return recorder;
  }

  template <class... Params>
  void add(backend::Dim3 grid, backend::Dim3 block, int64_t shared_bytes, void (*kernel)(Params...),
           const Params&... arguments) {
    RecordedLaunch& launch = launches_.emplace_back();
    launch.shape = {
        reinterpret_cast<intptr_t>(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes};
    (append(arguments, launch.arguments), ...);
  }
  const std::vector<RecordedLaunch>& launches() const { return launches_; }

 private:
  template <class Value>
  static void append(const Value& value, std::vector<unsigned char>& bytes) {
    if constexpr (std::has_unique_object_representations_v<Value>) {
      bytes.resize(bytes.size() + sizeof value);
      std::memcpy(bytes.data() + bytes.size() - sizeof value, &value, sizeof value);
    }
  }

  std::vector<RecordedLaunch> launches_;
};

}}}  // namespace warprank::v0::device
