// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a model asks of the weights it is bound to.

#include <cstdint>
#include <string>
#include <vector>

namespace warprank { inline namespace v0 {

/// One learned tensor that a model reads.
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;  ///< a matrix: [out, in] or stacked [groups, out, in], whatever the stored layout
  bool is_matrix = false;      ///< its last two dimensions are swapped where the weights are in Keras' layout
  bool optional = false;       ///< may be absent
};

}}  // namespace warprank::v0
