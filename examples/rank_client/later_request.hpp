// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../server/axes_with_inputs.hpp"
#include "warprank/batch/batch.hpp"

namespace rank_client {

/// Adds to `later`, a batch of a layout with some of the inputs of `whole`, these inputs of a request.
inline void add_later(warprank::Batch& later, const warprank::BatchLayout& layout, const warprank::BlobView& whole) {
  const warprank::BatchLayout& to = later.layout();
  warprank::Request request = later.add_request();
  const std::vector<bool> has_inputs = kserve::axes_with_inputs(to);
  for (size_t a = 1; a < has_inputs.size(); ++a) {
    const warprank::AxisSlot axis{static_cast<int>(a)};
    if (!has_inputs[a]) continue;
    if (!to.has_offsets(axis)) {
      request.lengths(axis, std::vector<int64_t>{whole.rows(axis)});
      continue;
    }
    const warprank::Span<const uint32_t> offsets = whole.offsets(axis);
    request.offsets(axis, std::vector<int64_t>(offsets.begin(), offsets.end()));
  }
  for (const warprank::IdsInfo& info : to.ids()) {
    const warprank::IdsSlot from = layout.ids(info.name);
    if (!whole.has(from)) continue;  // the default
    std::vector<int64_t> ids(static_cast<size_t>(whole.rows({info.axis})));
    whole.copy_ids(from, ids.data());
    request.ids(to.ids(info.name), ids);
  }
  for (const warprank::DenseInfo& info : to.dense()) {
    const warprank::DenseSlot from = layout.dense(info.name);
    if (!whole.has(from)) continue;
    std::vector<float> values(static_cast<size_t>(whole.rows({info.axis}) * info.width));
    whole.copy_dense(from, 0, static_cast<int64_t>(values.size()), values.data());
    request.dense(to.dense(info.name), values);
  }
}

}  // namespace rank_client
