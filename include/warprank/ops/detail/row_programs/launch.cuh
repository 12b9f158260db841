// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The host's part of ops/row_programs.cuh: plans a launch of programs that were checked (check.cuh) and described
/// (describe.cuh), and launches. RowProgram is defined there, for all to read.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/device/compiled_kernels.hpp"
#include "warprank/device/launch.hpp"
#include "warprank/device/target.hpp"
#include "warprank/ops/detail/row_programs/check.cuh"
#include "warprank/ops/detail/row_programs/describe.cuh"
#include "warprank/ops/detail/row_programs/kernel.cuh"
#include "warprank/ops/detail/row_programs/norm_rows.cuh"
#include "warprank/ops/detail/row_programs/one_program.cuh"
#include "warprank/ops/detail/row_programs/plan_one.cuh"
#include "warprank/ops/launch_policies.hpp"

namespace warprank { inline namespace v0 { namespace detail::row_programs {

/// Programs of one launch, cut into blocks.
struct LaunchPlan {
  std::vector<unsigned char> descriptors;  // addresses of learned vectors, then programs that are no parameter
  std::vector<unsigned char> programs;     // with all that they refer to
  int64_t num_programs = 0, num_blocks = 0;
  int64_t programs_at = 0;  // in the descriptors
  int num_slots = 0;
  bool reads_ahead = false;
  Contents contents = Contents::copies;
  int norm_steps = 0;  ///< of norm_rows_kernel; 0: another kernel
  bool has_folds = false;
  bool is_one = false;  ///< of one_program_kernel
  OneProgram one{};     ///< without the addresses

  bool fit_in_parameters() const { return static_cast<int64_t>(programs.size()) <= parameter_bytes; }
};

template <class RowProgram>
LaunchPlan plan_launch(Span<const RowProgram> programs, const LaunchPolicies& policies) {
  Problems problems;
  for (int64_t i = 0; i < programs.size(); ++i) {
    check_program(programs[i], "row program " + std::to_string(i), problems);
  }
  problems.throw_if_any();
  check_overlaps(programs, problems);
  problems.throw_if_any();

  LaunchPlan plan;
  plan.num_programs = programs.size();
  const int64_t num_multiprocessors = programs.empty() ? 1 : device::num_multiprocessors();
  plan.programs.resize(static_cast<size_t>(programs.size()) * sizeof(Program));
  std::vector<const float*> addresses;
  bool are_norms = true;
  for (int64_t i = 0; i < programs.size(); ++i) {
    Program to = describe(programs[i], num_multiprocessors, policies);
    const std::vector<SlotOperation> operations = operations_of(programs[i], to.is_copy);
    std::vector<Ancestor> ancestors;
    append_parts(programs[i], operations, ancestors, to, addresses, plan.programs);
    if (ancestors.size() > max_ancestors) {
      problems.add("row program " + std::to_string(i),
                   "inputs on at most " + std::to_string(max_ancestors) + " different ancestors",
                   std::to_string(ancestors.size()));
    }
    for (const SlotOperation& operation : operations) plan.num_slots = std::max(plan.num_slots, operation.to + 1);
    const Contents contents = to.is_copy                               ? Contents::copies
                              : to.step == RowStep::Kind::each_element ? Contents::elements
                                                                       : Contents::steps;
    plan.contents = std::max(plan.contents, contents);
    plan.reads_ahead = plan.reads_ahead || to.reads_ahead;
    const int norm_steps = norm_steps_of(programs[i], to);
    are_norms = are_norms && norm_steps > 0;
    plan.norm_steps = std::max(plan.norm_steps, norm_steps);
    plan.has_folds = plan.has_folds || to.folds != 0;
    to.first_block = static_cast<int>(plan.num_blocks);
    plan.num_blocks += to.num_blocks;
    std::memcpy(plan.programs.data() + static_cast<size_t>(i) * sizeof to, &to, sizeof to);
  }
  problems.throw_if_any();
  if (!are_norms) plan.norm_steps = 0;
  append(plan.descriptors, addresses);
  plan.programs_at = static_cast<int64_t>(plan.descriptors.size());
  plan.is_one = plan.num_programs == 1 && describe_one(plan.programs, plan.one);
  if (!plan.fit_in_parameters()) append(plan.descriptors, plan.programs);
  return plan;
}

WARPRANK_HIDDEN WARPRANK_KERNELS_INLINE void launch(const LaunchPlan& plan, const void* descriptors,
                                                    device::Stream stream);

#if !defined(WARPRANK_KERNELS_COMPILED) || defined(WARPRANK_KERNELS_OF_ROW_PROGRAMS)
/// The kernel for launches of nothing but norms that has enough steps, of those with 1, 2, 3, 4, 6 and 8.
template <class Source, int Steps = 1>
auto norm_kernel(int steps) -> decltype(&norm_rows_kernel<Source, 1, false>) {
  constexpr int next = Steps < 4 ? Steps + 1 : Steps + 2;
  if constexpr (next <= max_norm_steps) {
    if (steps > Steps) return norm_kernel<Source, next>(steps);
  }
  return norm_rows_kernel<Source, Steps, false>;
}
template <class Source>
auto norm_kernel(const LaunchPlan& plan) -> decltype(&norm_rows_kernel<Source, 1, false>) {
  if (!plan.has_folds) return norm_kernel<Source>(plan.norm_steps);
  if (plan.norm_steps <= 2) return norm_rows_kernel<Source, 2, true>;
  if (plan.norm_steps <= 4) return norm_rows_kernel<Source, 4, true>;
  return norm_rows_kernel<Source, max_norm_steps, true>;
}

WARPRANK_KERNELS_INLINE void launch(const LaunchPlan& plan, const void* descriptors, device::Stream stream) {
  const bool are_norms = plan.norm_steps > 0;
  const int64_t slot_bytes = int64_t{plan.num_slots} * threads * row_vector_size * static_cast<int64_t>(sizeof(float));
  const device::LaunchConfig config(static_cast<unsigned>(plan.num_blocks), threads, are_norms ? 0 : slot_bytes,
                                    stream);
  const auto* addresses = static_cast<const float* const*>(descriptors);
  const auto num_programs = static_cast<int>(plan.num_programs);
  if (plan.is_one) {
    OneProgram one = plan.one;
    one.addresses = addresses;
    device::launch_overlapping(config, one_program_kernel, one);
  } else if (plan.fit_in_parameters()) {
    InParameters source{};
    std::copy(plan.programs.begin(), plan.programs.end(), source.bytes);
    const auto kernel = are_norms                             ? norm_kernel<InParameters>(plan)
                        : plan.contents == Contents::copies   ? row_programs_kernel<InParameters, Contents::copies>
                        : plan.contents == Contents::elements ? row_programs_kernel<InParameters, Contents::elements>
                                                              : row_programs_kernel<InParameters, Contents::steps>;
    device::launch_overlapping(config, kernel, source, addresses, num_programs);
  } else {
    const InMemory source{static_cast<const unsigned char*>(descriptors) + plan.programs_at};
    const auto kernel = are_norms ? norm_kernel<InMemory>(plan) : row_programs_kernel<InMemory, Contents::steps>;
    device::launch_overlapping(config, kernel, source, addresses, num_programs);
  }
}
#endif

}}}  // namespace warprank::v0::detail::row_programs
