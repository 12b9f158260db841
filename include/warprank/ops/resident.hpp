// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A primitive with the device memory of its launches, for use without an engine:
///
///     Resident bags(EmbeddingBag(features), stream);
///     bags.launch(stream);                                  // as often as wanted, also into a captured graph
///     bags.replace(EmbeddingBag(features_of_new_tables), stream);

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/ops/contract.hpp"

namespace warprank { inline namespace v0 {

/// Device memory from the allocator that is set for the device, else from the runtime.
struct AllocateDeviceMemory {
  device::DeviceMemory operator()(int64_t bytes, const std::string& what) const { return {bytes, what}; }
};

/// `Allocate` gives memory of the current device: allocate(bytes, what) returns an object that owns it and has data(),
/// aligned to 256 bytes. It is called for more than 0 bytes, at most twice, when a Resident is made.
template <class Op, class Allocate = AllocateDeviceMemory>
class Resident {
 public:
  /// Waits until the memory is ready. Throws invalid_argument for memory that is null or misaligned, and the errors of
  /// `allocate`.
  explicit Resident(Op op, device::Stream stream = {}, Allocate allocate = {})
      : op_(std::move(op)),
        workspace_(allocated(allocate, op_.workspace_bytes(), "a workspace")),
        descriptors_(allocated(allocate, op_.descriptor_bytes(), "descriptors")) {
    if (op_.workspace_bytes() > 0) device::fill(memory().workspace, 0, op_.workspace_bytes(), stream);
    write(op_, stream);
  }

  const Op& op() const { return op_; }
  LaunchMemory memory() const { return {descriptors_.data(), workspace_.data()}; }

  /// Queues the kernels.
  void launch(device::Stream stream = {}) const { op_.launch(memory(), stream); }

  /// From now on, launches in the stream, also of captured graphs, run the plan `next`, which has the same shapes,
  /// capacities and alignments. Waits for earlier work in the stream. Throws invalid_argument if descriptors or
  /// workspace have other sizes.
  void replace(Op next, device::Stream stream = {}) {
    if (next.descriptor_bytes() != op_.descriptor_bytes() || next.workspace_bytes() != op_.workspace_bytes())
      raise(
          invalid_argument("Resident::replace",
                           "descriptors of " + std::to_string(op_.descriptor_bytes()) + " bytes and a workspace of " +
                               std::to_string(op_.workspace_bytes()),
                           std::to_string(next.descriptor_bytes()) + " and " + std::to_string(next.workspace_bytes())));
    write(next, stream);
    op_ = std::move(next);
  }

 private:
  using Memory = decltype(std::declval<Allocate&>()(int64_t{}, std::string()));

  static Memory allocated(Allocate& allocate, int64_t bytes, const char* what) {
    if (bytes == 0) return {};
    Memory memory = allocate(bytes, what);
    detail::require_memory(what, "of a primitive", memory.data(), LaunchMemory::workspace_alignment);
    return memory;
  }
  void write(const Op& op, device::Stream stream) const {
    const std::vector<unsigned char> bytes = op.descriptors(workspace_.data());
    if (!bytes.empty())
      device::copy_to_device(descriptors_.data(), bytes.data(), static_cast<int64_t>(bytes.size()), stream);
    device::synchronize(stream);
  }

  Op op_;
  Memory workspace_, descriptors_;
};

}}  // namespace warprank::v0
