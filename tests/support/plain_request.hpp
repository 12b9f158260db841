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

}  // namespace warprank::test_support
