// SPDX-License-Identifier: Apache-2.0
#include "model/timing.hpp"

namespace t4 {

const char* name_of(Why why) {
  static constexpr const char* names[num_reasons] = {"fixed latency", "global memory", "shared memory", "functions",
                                                     "exchanges",     "barriers",      "fetch",         "constants",
                                                     "branches",      "busy pipes",    "other warps",   "start"};
  return names[static_cast<size_t>(why)];
}

}  // namespace t4
