// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace warprank { inline namespace v0 { namespace device {

/// A device and its free memory now.
struct DeviceInfo {
  std::string name;
  int target = 0;  ///< device::target() on this device
  int multiprocessors = 0;
  int64_t free_bytes = 0, total_bytes = 0;
  int driver_version = 0, runtime_version = 0;  ///< of CUDA, 1000 * major + 10 * minor
};

}}}  // namespace warprank::v0::device
