// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A step of a plan at one capacity: kernels that are ready to be queued, and the memory that they alone use.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/float_matrix.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/ops/contract.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// What a step queues at every run. Its memory is the run's.
struct PreparedStep {
  std::string kernel;  ///< what is launched
  std::string name;    ///< what it computes
  int num_launches = 1;
  /// Whether what it queues depends on the model by more than what is in device memory: it is a user's. A captured
  /// graph of it serves one model alone.
  bool captures_weights = false;
  /// Whether it reads rows of values behind those of the batch, and lets nothing depend on them.
  bool reads_unused_rows = false;
  /// What cuBLASLt sums in parts: it is to be seen whether all rows are cut alike.
  std::vector<FloatMatrix<const void>> cut_sums;
  std::function<void(device::Stream)> queue;
};

/// Device memory that the steps of one run have for themselves, and some that all have in turns. They take it one after
/// another while they are prepared, which touches no device: steps that are prepared again in the same way get the same
/// addresses.
class StepMemory {
 public:
  /// Bytes by what they are at first; multiples of the alignment.
  struct Sizes {
    int64_t copied = 0, zeroed = 0, unwritten = 0;
    int64_t in_turns = 0;  ///< the most that one step wants

    /// Without what is used in turns.
    int64_t bytes() const { return copied + zeroed + unwritten; }
    bool operator==(const Sizes& other) const {
      return copied == other.copied && zeroed == other.zeroed && unwritten == other.unwritten &&
             in_turns == other.in_turns;
    }
  };
  static constexpr int64_t alignment = 256;

  /// Gives addresses that nobody has, to find out how much is needed.
  StepMemory() : copied_(nowhere(0)), zeroed_(nowhere(1)), unwritten_(nowhere(2)), in_turns_(nowhere(8)) {}
  /// `sizes` that steps have been found to need, at `begin`; and sizes.in_turns bytes or more, which other runs may
  /// use, too, while this one does not.
  StepMemory(unsigned char* begin, const Sizes& sizes, unsigned char* in_turns)
      : copied_(begin),
        zeroed_(begin + sizes.copied),
        unwritten_(zeroed_ + sizes.zeroed),
        in_turns_(in_turns),
        image_(static_cast<size_t>(sizes.copied)) {}

  /// The `i`-th of a few ranges of addresses that are aligned, far apart, and of no memory.
  static unsigned char* nowhere(uint64_t i) { return reinterpret_cast<unsigned char*>((i + 1) << 58); }

  /// Memory with the bytes that `write(unsigned char*)` writes. Of 0 bytes: null, also below.
  template <class Write>
  void* copied(int64_t bytes, Write write) {
    const int64_t begin = sizes_.copied;
    void* const at = take(bytes, copied_, sizes_.copied);
    if (!image_.empty() && bytes > 0) {
      // Another model's steps may turn out to need more, which is found when they have taken it.
      image_.resize(std::max(image_.size(), static_cast<size_t>(sizes_.copied)));
      write(image_.data() + begin);
    }
    return at;
  }
  const void* copied(Span<const unsigned char> bytes) {
    return copied(bytes.size(), [&](unsigned char* to) { std::copy(bytes.begin(), bytes.end(), to); });
  }
  /// The memory of a primitive's launches.
  LaunchMemory of(const Primitive& launch) {
    void* const workspace = zeroed(launch.workspace_bytes());
    return {copied(launch.descriptors(workspace)), workspace};
  }
  /// Memory that is zero before the first run.
  void* zeroed(int64_t bytes) { return take(bytes, zeroed_, sizes_.zeroed); }
  void* unwritten(int64_t bytes) { return take(bytes, unwritten_, sizes_.unwritten); }
  /// The same for every step, which finds there what the one before it has left.
  void* in_turns(int64_t bytes) {
    int64_t taken = 0;
    void* const at = take(bytes, in_turns_, taken);
    sizes_.in_turns = std::max(sizes_.in_turns, taken);
    return at;
  }

  /// What was taken so far.
  const Sizes& sizes() const { return sizes_; }
  unsigned char* begin() const { return copied_; }
  unsigned char* begin_in_turns() const { return in_turns_; }

  /// Queue that the memory becomes what it is to be. This stays as it is until that is done.
  void write(device::Stream stream) const {
    write_copied(stream);
    if (sizes_.zeroed > 0) device::fill(zeroed_, 0, sizes_.zeroed, stream);
  }
  void write_copied(device::Stream stream) const {
    if (sizes_.copied > 0) device::copy_to_device(copied_, image_.data(), sizes_.copied, stream);
  }

 private:
  static void* take(int64_t bytes, unsigned char* begin, int64_t& taken) {
    if (bytes == 0) return nullptr;
    unsigned char* const at = begin + taken;
    taken += (bytes + alignment - 1) / alignment * alignment;
    return at;
  }

  unsigned char *copied_, *zeroed_, *unwritten_, *in_turns_;
  Sizes sizes_;
  std::vector<unsigned char> image_;  // of what is copied; empty while that is only counted
};

/// Device memory with the bytes of `data`. Waits until they are there, so that nobody need keep them.
inline device::DeviceMemory copied(Span<const unsigned char> data, const std::string& what, device::Stream stream) {
  device::DeviceMemory memory(data.size(), what);
  if (data.size() > 0) {
    device::copy_to_device(memory.data(), data.data(), data.size(), stream);
    device::synchronize(stream);
  }
  return memory;
}

}}}  // namespace warprank::v0::cuda_backend
