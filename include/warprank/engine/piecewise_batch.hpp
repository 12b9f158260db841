// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A batch some of whose bytes have a place in the device's memory. Plain C++, no device.

#include <cstddef>
#include <cstdint>
#include <string>

#include "warprank/batch/batch.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"

namespace warprank { inline namespace v0 {

/// Bytes of a batch's blobs that have a place in memory of the device.
struct BatchPiece {
  int64_t at = 0;     ///< in Batch::blobs()
  int64_t bytes = 0;  ///< at least 8
  int64_t place = 0;  ///< in the memory
  /// Whether the device reads them there. What the batch has in their place is then not sent and may be anything. If
  /// not, they are sent, and stored there for a later batch.
  bool is_there = false;
};

/// A closed batch, and pieces of it. All numbers of a piece are multiples of 8; pieces are in the order of `at`, and do
/// not overlap, nor do their places unless all there are read. A view: batch, memory and pieces must outlive it, and
/// stay unchanged until the run was waited for.
class PiecewiseBatch {
 public:
  /// `memory`: of the device, aligned to 8 bytes. Throws invalid_argument for an open batch, and for the first piece
  /// that is misaligned, out of order, or outside of the batch or the memory.
  PiecewiseBatch(const Batch& batch, Span<std::byte> memory, Span<const BatchPiece> pieces)
      : batch_(&batch), memory_(memory), pieces_(pieces) {
    if (!batch.closed()) throw invalid_argument("piecewise batch", "a closed batch", "an open one");
    if (const auto beyond = reinterpret_cast<uintptr_t>(memory.data()) % 8; beyond != 0)
      throw invalid_argument("memory of a piecewise batch", "an address that is a multiple of 8",
                             "one that is " + std::to_string(beyond) + " bytes beyond");
    int64_t end = 0;
    for (const BatchPiece& piece : pieces) {
      const bool is_aligned = piece.at % 8 == 0 && piece.bytes % 8 == 0 && piece.place % 8 == 0;
      if (!is_aligned || piece.bytes < 8) throw invalid_argument("piece of a batch", "multiples of 8", text_of(piece));
      if (piece.at < end || piece.bytes > batch.blobs().size() - piece.at)
        throw invalid_argument(
            "piece of a batch",
            "one within bytes " + std::to_string(end) + " to " + std::to_string(batch.blobs().size()) + " of the batch",
            text_of(piece));
      if (piece.place < 0 || piece.bytes > memory.size() - piece.place)
        throw invalid_argument("piece of a batch",
                               "a place within " + std::to_string(memory.size()) + " bytes of memory", text_of(piece));
      end = piece.at + piece.bytes;
    }
  }

  const Batch& batch() const { return *batch_; }
  /// In the device's memory.
  Span<std::byte> memory() const { return memory_; }
  Span<const BatchPiece> pieces() const { return pieces_; }

 private:
  static std::string text_of(const BatchPiece& piece) {
    return std::to_string(piece.bytes) + " bytes at " + std::to_string(piece.at) + " with place " +
           std::to_string(piece.place);
  }

  const Batch* batch_;
  Span<std::byte> memory_;
  Span<const BatchPiece> pieces_;
};

}}  // namespace warprank::v0
