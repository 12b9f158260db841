// SPDX-License-Identifier: Apache-2.0
#include "warprank/device/empty_kernel.hpp"

void launch_empty(warprank::device::Stream stream) { warprank::device::launch_empty(stream); }
