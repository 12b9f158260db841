// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where a request's blob says where its parts are.

#include <cstdint>

#include "warprank/batch/format.hpp"
#include "warprank/ops/bag_feature.hpp"

namespace warprank { inline namespace v0 { namespace detail::embedding_bag {

/// Bytes from the beginning of a blob of the plan to the positions that it states.
class BlobEntries {
 public:
  explicit BlobEntries(const RequestBlobs& requests)
      : offsets_at_(static_cast<int64_t>(sizeof(BlobHeader)) + 4 * requests.num_axes),
        inputs_at_(offsets_at_ + 4 * requests.num_axes) {}

  uint32_t of_offsets(int axis) const { return static_cast<uint32_t>(offsets_at_ + 4 * axis); }
  /// The positions of inputs follow one another, ids first.
  uint32_t of_input(int input) const { return static_cast<uint32_t>(inputs_at_ + 4 * input); }

 private:
  int64_t offsets_at_, inputs_at_;
};

}}}  // namespace warprank::v0::detail::embedding_bag
