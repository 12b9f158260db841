// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What is to be gathered for each part of a batch.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "warprank/device/owned_memory.hpp"
#include "warprank/device/runtime.hpp"
#include "warprank/engine/cuda/batch_outputs.cuh"
#include "warprank/engine/cuda/batch_runs.cuh"
#include "warprank/engine/cuda/gather.cuh"
#include "warprank/engine/piecewise_batch.hpp"

namespace warprank { inline namespace v0 { namespace cuda_backend {

/// Of one context, whose last batch is done. Keeps its memory from one batch to the next.
class GatheredParts {
 public:
  /// For a batch without pieces.
  void clear() { ends_.clear(); }
  /// Lists what brings each part of the batch to its place: what is sent, what is read on the device, and what is
  /// stored there. Of a batch in memory that kernels cannot read only the pieces, as they are where it is copied to.
  void list(const PiecewiseBatch& batch, const BatchRuns& runs, const PinnedParts& places) {
    clear();
    count_ = 0;
    has_all_ = device::can_read(batch.batch().blobs().data());
    const BatchPiece* piece = batch.pieces().begin();
    for (int64_t i = 0; i < runs.parts().count(); ++i) {
      const BatchPart& part = runs.parts()[i];
      const std::byte* const from = batch.batch().blobs().data();
      unsigned char* const index = runs.memory_of(part).index;
      unsigned char* const to = index - part.blobs_end;  // of the first byte of the batch
      int64_t at = part.blobs_begin;
      for (; piece != batch.pieces().end() && piece->at < part.blobs_end; ++piece) {
        if (has_all_) add(from + at, to + at, nullptr, piece->at - at);
        std::byte* const place = batch.memory().data() + piece->place;
        if (piece->is_there)
          add(place, to + piece->at, nullptr, piece->bytes);
        else if (has_all_)
          add(from + piece->at, to + piece->at, place, piece->bytes);
        else
          add(to + piece->at, place, nullptr, piece->bytes);
        at = piece->at + piece->bytes;
      }
      if (has_all_) {
        add(from + at, to + at, nullptr, part.blobs_end - at);
        add(places[i].index != nullptr ? places[i].index : batch.batch().blobs().end(), index, nullptr,
            runs.run_of(part).index().bytes());
      }
      ends_.push_back(count_);
    }
  }

  bool any() const { return !ends_.empty(); }
  /// Whether the batch is listed as a whole, with its indices; if not, it is copied ahead.
  bool has_all() const { return any() && has_all_; }
  Gather of(int64_t part) const {
    const int64_t begin = part == 0 ? 0 : ends_[static_cast<size_t>(part) - 1];
    return {pieces() + begin, ends_[static_cast<size_t>(part)] - begin};
  }
  int64_t pinned_bytes() const { return memory_.bytes(); }

 private:
  GatherPiece* pieces() const { return static_cast<GatherPiece*>(memory_.data()); }

  /// Addresses and bytes are multiples of 8.
  void add(const void* from, void* to, void* also_to, int64_t bytes) {
    constexpr int64_t most_bytes = 8 * GatherPiece::most_words;
    for (int64_t at = 0; at < bytes; at += most_bytes) {
      if (count_ == memory_.bytes() / static_cast<int64_t>(sizeof(GatherPiece))) grow();
      const auto words_of = [at](auto* begin) { return begin == nullptr ? nullptr : begin + at / 8; };
      pieces()[count_++] = {static_cast<const uint64_t*>(from) + at / 8, static_cast<uint64_t*>(to) + at / 8,
                            words_of(static_cast<uint64_t*>(also_to)), std::min(most_bytes, bytes - at) / 8};
    }
  }
  void grow() {
    constexpr int64_t least = 256;
    device::PinnedMemory larger(std::max(least * static_cast<int64_t>(sizeof(GatherPiece)), 2 * memory_.bytes()),
                                "a batch's pieces");
    std::copy_n(pieces(), count_, static_cast<GatherPiece*>(larger.data()));
    memory_ = std::move(larger);
  }

  device::PinnedMemory memory_;
  int64_t count_ = 0;
  std::vector<int64_t> ends_;  // by part: of its pieces
  bool has_all_ = false;
};

}}}  // namespace warprank::v0::cuda_backend
