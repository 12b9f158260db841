// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "warprank/batch/batch.hpp"

namespace warprank::test_support {

/// What a request says, by name, before anything is packed. An axis without lengths has no rows.
struct PlainRequest {
  std::map<std::string, std::vector<int64_t>> lengths;  ///< rows of each nested axis in each row of its parent
  std::map<std::string, std::vector<int64_t>> ids;
  std::map<std::string, std::vector<float>> dense;  ///< row-major
};

/// A request of the batch that is not finished.
inline Request add_open_to(Batch& batch, const PlainRequest& plain) {
  const BatchLayout& layout = batch.layout();
  Request request = batch.add_request();
  for (const auto& [axis, lengths] : plain.lengths) request.lengths(layout.axis(axis), Lengths(lengths));
  for (const auto& [name, ids] : plain.ids) request.ids(layout.ids(name), ids);
  for (const auto& [name, values] : plain.dense) request.dense(layout.dense(name), values);
  return request;
}
inline Request add_to(Batch& batch, const PlainRequest& plain) {
  Request request = add_open_to(batch, plain);
  request.finish();
  return request;
}

/// What a request of a batch says, whose inputs are of 64 bits and FP32.
inline PlainRequest plain_of(const BlobView& request, const BatchLayout& layout) {
  PlainRequest plain;
  for (int a = 1; a < static_cast<int>(layout.axes().size()); ++a) {
    std::vector<int64_t>& lengths = plain.lengths[layout.axes()[static_cast<size_t>(a)].name];
    const Span<const uint32_t> offsets = request.offsets({a});
    if (offsets.empty()) lengths = {request.rows({a})};
    for (int64_t s = 1; s < offsets.size(); ++s) lengths.push_back(int64_t{offsets[s]} - int64_t{offsets[s - 1]});
  }
  for (const IdsInfo& info : layout.ids())
    if (const IdsSlot slot = layout.ids(info.name); request.has(slot))
      plain.ids[info.name] = {request.ids(slot).begin(), request.ids(slot).end()};
  for (const DenseInfo& info : layout.dense())
    if (const DenseSlot slot = layout.dense(info.name); request.has(slot))
      plain.dense[info.name] = {request.dense(slot).begin(), request.dense(slot).end()};
  return plain;
}

}  // namespace warprank::test_support
