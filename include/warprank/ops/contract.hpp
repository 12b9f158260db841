// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How every primitive is used: `Op` stands for EmbeddingBag, Dot, LinearLaunch and all other classes that launch
/// kernels.
///
///     const Op op(...);                                     // checks and plans, on the host
///     ... op.workspace_bytes() of device memory, 0 at first; op.descriptors(workspace) copied to device memory ...
///     op.launch({descriptors, workspace}, stream);          // as often as wanted, also into a captured graph
///
/// A constructor throws invalid_argument, with all that is wrong. It asks CUDA for the current device, for which it
/// plans, and throws cuda_error where there is none; launch throws cuda_error for a launch that CUDA refuses. Both are
/// for the device that is the current one when they are called.
///
/// Resident (resident.hpp) does the steps between these lines. A plan holds the given addresses and no device memory of
/// its own. A launch reads the number of rows from device memory and queues op.num_launches() kernels in the stream; it
/// allocates nothing and waits for nothing. The null stream is the default stream.
///
/// Most primitives need neither descriptors nor a workspace: op.launch({}, stream).
///
/// A count in device memory that has its own capacity is a DeviceCount. The number of a matrix's rows, whose capacity
/// is Matrix::rows, is a pointer beside the matrix; null: all rows.

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/ops/detail/common/check_matrix.hpp"

namespace warprank { inline namespace v0 {

namespace detail {

template <class Record>
std::vector<unsigned char> bytes_of(const std::vector<Record>& records) {
  const auto* const begin = reinterpret_cast<const unsigned char*>(records.data());
  return {begin, begin + records.size() * sizeof(Record)};
}

/// Throws unless `data` is memory of this alignment.
inline void require_memory(const char* what, const char* whose, const void* data, int64_t alignment) {
  if (data != nullptr && reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(alignment) == 0) return;
  Problems problems;
  check_pointer(std::string(what) + " " + whose, data, alignment, problems);
  problems.throw_if_any();
}

}  // namespace detail

/// The device memory of launches; null if 0 bytes are needed.
struct LaunchMemory {
  static constexpr int64_t descriptor_alignment = 128, workspace_alignment = 256;

  /// A copy of op.descriptors(workspace). Between launches, descriptors of another plan with the same shapes,
  /// capacities and alignments may replace it.
  const void* descriptors = nullptr;
  /// Zeros before the first launch, and afterwards as launches leave it. Only one launch at a time may use it.
  void* workspace = nullptr;
};

/// The base of all primitives.
class Primitive {
 public:
  int64_t descriptor_bytes() const { return static_cast<int64_t>(descriptors_.size()); }
  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// The number of kernels that a launch queues; 0 if there is nothing to compute.
  int num_launches() const { return num_launches_; }
  /// Whether a launch reads rows of inputs behind the actual ones, up to the capacity; no result depends on them.
  bool reads_unused_rows() const { return reads_unused_rows_; }

  /// The bytes that must be in device memory. Descriptors of some primitives hold addresses in the workspace, and are
  /// valid only for this workspace. Throws invalid_argument if they need a workspace and it is null or misaligned.
  std::vector<unsigned char> descriptors(void* workspace = nullptr) const;

 protected:
  /// `name` is a literal that names the launched work in messages. Constructors set the rest, from their plans.
  explicit Primitive(const char* name) : name_(name) {}
  void set_launches(int64_t num, bool reads_unused_rows = false) {
    num_launches_ = static_cast<int>(num);
    reads_unused_rows_ = reads_unused_rows;
  }
  /// `workspace_addresses`: the places in the descriptors that hold addresses in the workspace, relative to its begin.
  void set_descriptors(std::vector<unsigned char> bytes, std::vector<int64_t> workspace_addresses = {}) {
    descriptors_ = std::move(bytes);
    workspace_addresses_ = std::move(workspace_addresses);
  }
  void set_workspace_bytes(int64_t bytes) { workspace_bytes_ = bytes; }

  /// Throws invalid_argument for memory that is missing or misaligned, if there is something to launch.
  void check(const LaunchMemory& memory) const {
    if (num_launches() == 0) return;
    if (descriptor_bytes() > 0)
      detail::require_memory("descriptors of", name_, memory.descriptors, LaunchMemory::descriptor_alignment);
    if (workspace_bytes() > 0) check_workspace(memory.workspace);
  }

 private:
  void check_workspace(const void* workspace) const {
    detail::require_memory("workspace of", name_, workspace, LaunchMemory::workspace_alignment);
  }

  const char* name_;
  std::vector<unsigned char> descriptors_;
  std::vector<int64_t> workspace_addresses_;
  int64_t workspace_bytes_ = 0;
  int num_launches_ = 0;
  bool reads_unused_rows_ = false;
};

inline std::vector<unsigned char> Primitive::descriptors(void* workspace) const {
  std::vector<unsigned char> bytes = descriptors_;
  if (workspace_addresses_.empty()) return bytes;
  check_workspace(workspace);
  for (const int64_t at : workspace_addresses_) {
    uintptr_t address = 0;
    std::memcpy(&address, bytes.data() + at, sizeof address);
    address += reinterpret_cast<uintptr_t>(workspace);
    std::memcpy(bytes.data() + at, &address, sizeof address);
  }
  return bytes;
}

}}  // namespace warprank::v0
