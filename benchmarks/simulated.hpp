// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Benchmarks on a card in software (docs/TESTING.md), which runs them as they are: it finds the time of a call by a
/// model, the same each time. So each call is timed once, and what it would be compared with is left out.

// The stand-in for the runtime has these.
extern "C" {
__attribute__((weak)) void t4_time(int on);
__attribute__((weak)) void t4_label(const char* name);
__attribute__((weak)) void t4_cold();
}

namespace warprank::bench {

inline bool is_simulated() { return t4_time != nullptr; }

}  // namespace warprank::bench
