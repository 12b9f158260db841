// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The requirements of a program on the machine's driver and card, and remedies if they are not met. Plain C++.
///
/// A program that was built with CUDA 12.x runs with every driver from CUDA 12.0's on, and a program built with 13.x
/// from 13.0's on: minor versions are compatible if the program has code for the card. PTX needs a driver that is not
/// older than the compiler that wrote it.

#include <optional>
#include <string>

#include "warprank/core/cuda_error.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// The first driver of each major version of CUDA, on Linux.
struct FirstDriver {
  int cuda;
  const char* driver;
};
inline constexpr FirstDriver first_drivers[] = {{12, "525.60.13"}, {13, "580.65.06"}};

inline constexpr int least_capability = 75;

/// The findings of a program that wants to use a device.
struct FoundDevice {
  int index = 0;            ///< of the wanted device
  int num_devices = 0;      ///< visible to the process
  int driver_version = 0;   ///< of CUDA, 1000 * major + 10 * minor; 0: there is no driver
  int runtime_version = 0;  ///< likewise, of the CUDA that the program was built with
  std::string name;         ///< of the device
  int capability = 0;       ///< 10 * major + minor
  int error = 0;            ///< of the CUDA runtime, when asked for the devices, or for code for this one
  std::string error_name;
};

namespace detail {

inline std::string cuda_version(int version) {
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}
inline std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}
/// "a driver for CUDA 13.0 (580.65.06) or newer"
inline std::string needed_driver(int runtime_version) {
  const int major = runtime_version / 1000;
  std::string text = "a driver for " + cuda_version(1000 * major);
  for (const FirstDriver& first : first_drivers) {
    if (first.cuda == major) text += std::string(" (") + first.driver + ")";
  }
  return text + " or newer";
}

}  // namespace detail

/// An error with the expectation, the finding and a remedy; empty if the device can be used.
inline std::optional<cuda_error> why_unusable(const FoundDevice& found) {
  constexpr int insufficient_driver = 35, no_device = 100, invalid_device = 101, no_code = 209, unsupported_ptx = 222;
  const std::string what = "use device " + std::to_string(found.index);
  const std::string built = "as this program was built with " + detail::cuda_version(found.runtime_version);
  const auto refused = [&](int code, const std::string& name, const std::string& expected, const std::string& got) {
    return cuda_error(what + ": expected " + expected + ", got " + got, code, name);
  };
  const int driver_major = found.driver_version / 1000, built_major = found.runtime_version / 1000;
  if (driver_major < built_major) {
    if (found.driver_version == 0)
      return refused(insufficient_driver, "cudaErrorInsufficientDriver", detail::needed_driver(found.runtime_version),
                     "none: NVIDIA's driver is not installed, or this process cannot see it");
    std::string remedy = "a newer driver";
    if (driver_major >= first_drivers[0].cuda)
      remedy += ", or this program built with CUDA " + std::to_string(driver_major) + ",";
    return refused(insufficient_driver, "cudaErrorInsufficientDriver",
                   detail::needed_driver(found.runtime_version) + ", " + built,
                   "one for " + detail::cuda_version(found.driver_version) + "; " + remedy + " would do");
  }
  if (found.num_devices == 0 && (found.error == 0 || found.error == no_device))
    return refused(no_device, "cudaErrorNoDevice", "a GPU",
                   "none that this process can see; nvidia-smi lists them, CUDA_VISIBLE_DEVICES may hide them");
  if (found.num_devices > 0 && (found.index < 0 || found.index >= found.num_devices))
    return refused(invalid_device, "cudaErrorInvalidDevice",
                   "an index from 0 to " + std::to_string(found.num_devices - 1), std::to_string(found.index));
  if (found.num_devices > 0 && found.capability < least_capability)
    return refused(no_code, "cudaErrorNoKernelImageForDevice",
                   "a card of compute capability " + detail::capability_text(least_capability) + " or newer",
                   found.name + " of " + detail::capability_text(found.capability));
  if (found.error == no_code)
    return refused(no_code, "cudaErrorNoKernelImageForDevice",
                   "code for compute capability " + detail::capability_text(found.capability) + " of " + found.name,
                   "none in this program; it would be there with " + std::to_string(found.capability) +
                       " in CMAKE_CUDA_ARCHITECTURES");
  if (found.error == unsupported_ptx)
    return refused(unsupported_ptx, "cudaErrorUnsupportedPtxVersion",
                   "a driver for " + detail::cuda_version(found.runtime_version) + " or newer, " + built +
                       " and has only PTX for " + found.name,
                   "one for " + detail::cuda_version(found.driver_version) + "; a newer driver, or " +
                       std::to_string(found.capability) + " in CMAKE_CUDA_ARCHITECTURES, would do");
  if (found.error != 0) return cuda_error(what, found.error, found.error_name);
  return std::nullopt;
}

}}}  // namespace warprank::v0::device
