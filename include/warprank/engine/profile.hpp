// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where the time of a batch goes: what Context::profile returns.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "warprank/core/error.hpp"

namespace warprank { inline namespace v0 {

struct ProfileOptions {
  int turns = 10;  ///< of which the shortest time of each step counts
  int runs = 10;   ///< of the batch in a turn
};

/// A step of the plan, or what an engine does before or behind them.
struct StepTime {
  std::string name;      ///< what it computes: "top/0 and 2 more"
  std::string kernel;    ///< by what: "mlp"
  int64_t launches = 0;  ///< of kernels; 0 on the host
  double seconds = 0;
};

struct Profile {
  std::vector<StepTime> steps;  ///< in order
  double seconds = 0;           ///< from the first to the last
  /// What as many kernels that do nothing take, in a graph: how much of `seconds` is launching. 0 on the host.
  double empty_seconds = 0;
  /// A batch by the host's clock, from submit() to the end of wait(): what it takes beyond `seconds` are copies, scores
  /// on their way, and waiting. On the host it is `seconds`.
  double batch_seconds = 0;

  int64_t launches() const {
    int64_t sum = 0;
    for (const StepTime& step : steps) sum += step.launches;
    return sum;
  }

  /// A line for each step: its share, microseconds, launches where there are any, kernel and name.
  std::string to_string() const {
    const bool on_gpu = launches() > 0;
    std::string text = std::string("     %         us  ") + (on_gpu ? "launches  " : "") + "step\n";
    const auto add = [&](double part, int64_t count, const std::string& what) {
      char line[64];
      std::snprintf(line, sizeof line, "%6.1f %10.1f  ", seconds > 0 ? 100 * part / seconds : 0, 1e6 * part);
      text += line;
      if (on_gpu) {
        std::snprintf(line, sizeof line, "%8lld  ", static_cast<long long>(count));
        text += line;
      }
      text += what + "\n";
    };
    for (const StepTime& step : steps) add(step.seconds, step.launches, step.kernel + " " + step.name);
    add(seconds, launches(), "all");
    if (!on_gpu) return text;
    add(empty_seconds, launches(), "kernels that do nothing");
    add(batch_seconds - seconds, 0, "outside of kernels, of the batch as the host sees it");
    return text;
  }
};

namespace detail {

inline void check(const ProfileOptions& options) {
  Problems problems;
  if (options.turns < 1) problems.add("profile: turns", "1 or more", std::to_string(options.turns));
  if (options.runs < 1) problems.add("profile: runs", "1 or more", std::to_string(options.runs));
  problems.throw_if_any();
}

}  // namespace detail

}}  // namespace warprank::v0
