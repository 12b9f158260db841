// SPDX-License-Identifier: Apache-2.0
#include "warprank/device/requirements.hpp"

#include <gtest/gtest.h>

#include <string>

namespace warprank { inline namespace v0 { namespace device { namespace {

/// A T4 with the driver and the program of these versions of CUDA.
FoundDevice t4(int driver_version, int runtime_version) {
  FoundDevice found;
  found.num_devices = driver_version / 1000 < runtime_version / 1000 ? 0 : 1;
  found.driver_version = driver_version;
  found.runtime_version = runtime_version;
  found.name = "Tesla T4";
  found.capability = 75;
  return found;
}

std::string refusal(const FoundDevice& found) {
  const auto why = why_unusable(found);
  return why ? why->what() : "";
}

TEST(Requirements, MinorVersionsAreCompatible) {
  for (const auto& [driver, runtime] : {std::pair{12000, 12040}, {12040, 12000}, {13000, 12020}, {13000, 13010}})
    EXPECT_EQ(refusal(t4(driver, runtime)), "") << driver << " " << runtime;
}

TEST(Requirements, AnOlderDriverIsNamedWithWhatWouldDo) {
  EXPECT_EQ(refusal(t4(12020, 13000)),
            "use device 0: expected a driver for CUDA 13.0 (580.65.06) or newer, as this program was built with CUDA "
            "13.0, got one for CUDA 12.2; a newer driver, or this program built with CUDA 12, would do: CUDA error 35 "
            "(cudaErrorInsufficientDriver)");
  // There is no build for what is older than CUDA 12.
  EXPECT_EQ(refusal(t4(11080, 12040)),
            "use device 0: expected a driver for CUDA 12.0 (525.60.13) or newer, as this program was built with CUDA "
            "12.4, got one for CUDA 11.8; a newer driver would do: CUDA error 35 (cudaErrorInsufficientDriver)");
  EXPECT_EQ(refusal(t4(13000, 14000)),
            "use device 0: expected a driver for CUDA 14.0 or newer, as this program was built with CUDA 14.0, got one "
            "for CUDA 13.0; a newer driver, or this program built with CUDA 13, would do: CUDA error 35 "
            "(cudaErrorInsufficientDriver)");
}

TEST(Requirements, NoDriver) {
  EXPECT_EQ(refusal(t4(0, 12040)),
            "use device 0: expected a driver for CUDA 12.0 (525.60.13) or newer, got none: NVIDIA's driver is not "
            "installed, or this process cannot see it: CUDA error 35 (cudaErrorInsufficientDriver)");
}

TEST(Requirements, NoSuchDevice) {
  FoundDevice found = t4(13000, 13000);
  found.num_devices = 0;
  found.error = 100;
  EXPECT_EQ(refusal(found),
            "use device 0: expected a GPU, got none that this process can see; nvidia-smi lists them, "
            "CUDA_VISIBLE_DEVICES may hide them: CUDA error 100 (cudaErrorNoDevice)");
  found = t4(13000, 13000);
  for (int index : {-1, 1}) {
    found.index = index;
    EXPECT_EQ(refusal(found), "use device " + std::to_string(index) + ": expected an index from 0 to 0, got " +
                                  std::to_string(index) + ": CUDA error 101 (cudaErrorInvalidDevice)");
  }
}

TEST(Requirements, AnOlderCard) {
  FoundDevice found = t4(13000, 12040);
  found.name = "Tesla V100-SXM2-16GB";
  found.capability = 70;
  found.error = 209;
  EXPECT_EQ(refusal(found),
            "use device 0: expected a card of compute capability 7.5 or newer, got Tesla V100-SXM2-16GB of 7.0: CUDA "
            "error 209 (cudaErrorNoKernelImageForDevice)");
}

TEST(Requirements, NoCodeForTheCard) {
  FoundDevice found = t4(12020, 12040);
  found.name = "NVIDIA A10";
  found.capability = 86;
  found.error = 209;
  EXPECT_EQ(refusal(found),
            "use device 0: expected code for compute capability 8.6 of NVIDIA A10, got none in this program; it would "
            "be there with 86 in CMAKE_CUDA_ARCHITECTURES: CUDA error 209 (cudaErrorNoKernelImageForDevice)");
  found.error = 222;
  EXPECT_EQ(refusal(found),
            "use device 0: expected a driver for CUDA 12.4 or newer, as this program was built with CUDA 12.4 and has "
            "only PTX for NVIDIA A10, got one for CUDA 12.2; a newer driver, or 86 in CMAKE_CUDA_ARCHITECTURES, would "
            "do: CUDA error 222 (cudaErrorUnsupportedPtxVersion)");
}

TEST(Requirements, WhatElseTheRuntimeSaysIsPassedOn) {
  FoundDevice found = t4(13000, 13000);
  found.error = 999;
  found.error_name = "cudaErrorUnknown";
  EXPECT_EQ(refusal(found), "use device 0: CUDA error 999 (cudaErrorUnknown)");
  found.num_devices = 0;
  EXPECT_EQ(refusal(found), "use device 0: CUDA error 999 (cudaErrorUnknown)");
}

}}}}  // namespace warprank::v0::device
