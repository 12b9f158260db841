// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A batch in the device's memory. Plain C++, no device.

#include <cstddef>
#include <cstdint>
#include <string>

#include "warprank/batch/batch.hpp"
#include "warprank/core/error.hpp"

namespace warprank { inline namespace v0 {

/// A closed batch whose blobs lie in the device's memory, where kernels write values that the host does not know: ids
/// that a search on the card has found, or scores of an earlier stage. The host knows the rest: the requests, their
/// rows, and which inputs they set.
///
///     request.ids(user, {7}).ids(item, std::vector<int64_t>(100)).finish();  // the card knows which 100
///     batch.close();
///     cudaMemcpyAsync(memory, batch.blobs().data(), batch.blobs().size(), cudaMemcpyHostToDevice, stream);
///     const DeviceBatch on_device(batch, memory);
///     find_items<<<1, 128, 0, stream>>>(reinterpret_cast<int64_t*>(on_device.values(0, item)));
///     Pending pending = context.submit(on_device, stream);
///
/// Kernels may write any ids and any dense values, which nobody checks; all other bytes stay as the batch has them. A
/// view: batch and memory must outlive it, and stay unchanged until the run was waited for.
class DeviceBatch {
 public:
  /// `blobs`: [batch.blobs().size()] bytes of the device's memory, aligned to 8 bytes; may be null if there are none.
  /// Throws invalid_argument for an open batch, and for null or misaligned memory.
  DeviceBatch(const Batch& batch, void* blobs) : batch_(&batch), blobs_(static_cast<std::byte*>(blobs)) {
    if (!batch.closed()) throw invalid_argument("device batch", "a closed batch", "an open one");
    if (blobs == nullptr && batch.blobs().size() > 0)
      throw invalid_argument("memory of a device batch", std::to_string(batch.blobs().size()) + " bytes", "null");
    if (const auto beyond = reinterpret_cast<uintptr_t>(blobs) % 8; beyond != 0)
      throw invalid_argument("memory of a device batch", "an address that is a multiple of 8",
                             "one that is " + std::to_string(beyond) + " bytes beyond");
  }

  const Batch& batch() const { return *batch_; }
  /// In the device's memory.
  const std::byte* blobs() const { return blobs_; }

  /// The values of an input of request `r` in the device's memory: [rows * width], row-major, in the type of the
  /// batch's layout. Throws invalid_argument for a request without a blob, and for an input that it has not set.
  std::byte* values(int64_t r, IdsSlot input) const { return values_of(r, input, batch_->layout().ids(input).name); }
  std::byte* values(int64_t r, DenseSlot input) const {
    return values_of(r, input, batch_->layout().dense(input).name);
  }

 private:
  template <class Slot>
  std::byte* values_of(int64_t r, Slot input, const std::string& name) const {
    const std::byte* const values = batch_->blob(r).values(input);
    if (values == nullptr)
      throw invalid_argument("input '" + name + "' of request " + std::to_string(r), "one that the request has set",
                             "one that it has not");
    return blobs_ + (values - batch_->blobs().data());
  }

  const Batch* batch_;
  std::byte* blobs_;
};

}}  // namespace warprank::v0
