// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "warprank/weights/weights.hpp"

namespace warprank::test_support {

/// The tensors stored under other names, with a name map that tells which; `extra` as they are.
inline Weights renamed_weights(const std::map<std::string, StoredTensor>& tensors,
                               std::map<std::string, StoredTensor> extra = {}) {
  WeightsOptions options;
  for (const auto& [name, tensor] : tensors) {
    options.names[name] = "stored." + name;
    extra["stored." + name] = tensor;
  }
  return Weights::from_tensors(extra, options);
}

}  // namespace warprank::test_support
