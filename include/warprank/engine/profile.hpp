// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The times of the parts of a batch: the result of Context::profile.

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "warprank/core/error.hpp"

namespace warprank { inline namespace v0 {

struct ProfileOptions {
  int turns = 10;  ///< the shortest time of each step among these counts
  int runs = 10;   ///< runs of the batch in a turn
};

/// A step of the plan, or an engine's work before or behind the steps.
struct StepTime {
  std::string name;      ///< the nodes that it computes: "top/0 and 2 more"
  std::string kernel;    ///< its kernel: "mlp"
  int64_t launches = 0;  ///< launches of kernels; 0 on the host
  double seconds = 0;
};

struct Profile {
  std::vector<StepTime> steps;  ///< in order
  double seconds = 0;           ///< from the first step to the last
  /// The time of as many empty kernels in a graph: the share of launching in `seconds`. 0 on the host.
  double empty_seconds = 0;
  /// The time of a batch by the host's clock, from submit() to the end of wait(). The part beyond `seconds` is copies,
  /// the transfer of scores, and waiting. On the host it is `seconds`.
  double batch_seconds = 0;

  int64_t launches() const {
    int64_t sum = 0;
    for (const StepTime& step : steps) sum += step.launches;
    return sum;
  }

  /// A line for each step: its share, microseconds, launches if any, kernel and name.
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
