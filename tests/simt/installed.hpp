// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a program finds on the machine (device/requirements.hpp), for tests of what it says where that is not enough.

namespace simt {

struct Installed {
  int driver_version = 13000, runtime_version = 13000;  ///< of CUDA; without devices there is no driver
  int capability = 0;                                   ///< of the card; 0: Config::target
};

/// Until the next reset.
void install(const Installed& installed);

}  // namespace simt
