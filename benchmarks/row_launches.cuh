// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Launches of row programs for benchmarks on a GPU: one for all, and as frameworks do, one for each.

#include <vector>

#include "policies.cuh"
#include "warprank/ops/row_programs.cuh"

namespace warprank::bench {

inline Queue queue_row_programs(Memory& memory, const std::vector<RowProgram>& programs,
                                const LaunchPolicies& policies = usual_policies()) {
  return queue_launch(memory, RowProgramLaunch(programs, policies));
}

/// Each program in a launch of its own, one after another.
inline Queue queue_one_by_one(Memory& memory, const std::vector<RowProgram>& programs) {
  std::vector<Queue> queues;
  for (const RowProgram& program : programs) queues.push_back(queue_row_programs(memory, {program}));
  return in_sequence(std::move(queues));
}

}  // namespace warprank::bench
