// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace warprank::test_support {

/// Whether `holds` did within the time, which only a hang takes.
inline bool wait_until(const std::function<bool()>& holds, std::chrono::milliseconds time = std::chrono::minutes(2)) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace warprank::test_support
