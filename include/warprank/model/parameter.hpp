// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The learned tensors that a model reads from its weights.

#include <cstdint>
#include <string>
#include <vector>

namespace warprank { inline namespace v0 {

/// One learned tensor that a model reads.
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;  ///< a matrix: [out, in] or stacked [groups, out, in], whatever the stored layout
  bool is_matrix = false;      ///< its last two dimensions are swapped if the weights are in Keras' layout
  bool optional = false;       ///< may be absent
};

}}  // namespace warprank::v0
