// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What launches decide for speed alone (ops/launch_policies.hpp) beside what else they could, in the
/// programs that measure the ops:
///
///     const auto call_by = [&](const LaunchPolicies& policies) -> Call { ... };
///     if (sweep != nullptr) return compare_policies(run, *sweep, call_by);
///     run.measure(work, call_by(usual_policies()), baselines);
///
/// policy/<field>/<name> gives "us <value>" for each value of the field. tools/policies.py knows what follows.

#include <string>
#include <utility>
#include <vector>

#include "measure_cuda.cuh"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/common/card_policies.hpp"

namespace warprank::bench {

/// More than there ever is: for fields that say up to where.
inline constexpr int no_limit = 1 << 20;

struct PolicySweep {
  std::string field;  ///< its name
  int LaunchPolicies::*place;
  std::vector<int> values;
};

inline LaunchPolicies usual_policies() { return detail::launch_policies_of(device::target()); }

/// Each call has a result of its own.
template <class CallBy>
void compare_policies(Run& run, const PolicySweep& sweep, const CallBy& call_by) {
  std::vector<std::pair<std::string, Call>> ways;
  for (const int value : sweep.values) {
    LaunchPolicies policies = usual_policies();
    policies.*sweep.place = value;
    ways.emplace_back(std::to_string(value), call_by(policies));
  }
  run.compare(ways);
}

/// body(run, &sweep), under the field's name.
template <class Body>
void add_policy(const PolicySweep& sweep, const std::string& name, Body body) {
  add_sweep("policy/" + sweep.field + "/" + name, [sweep, body](Run& run) { body(run, &sweep); });
}

}  // namespace warprank::bench
