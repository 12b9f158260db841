// SPDX-License-Identifier: Apache-2.0
#pragma once

/// For which card kernels are chosen, on the host. A policy is a plain constexpr value chosen by the target:
///
///     template <int Target> inline constexpr Policy policy = ...;
///     dispatch_target<75, 80>(target(), [&](auto chosen) { launch(config, my_kernel<chosen()>, args...); });

#include <string>
#include <type_traits>
#include <utility>

#include "warprank/core/error.hpp"
#include "warprank/device/backend.hpp"

namespace warprank::device {

/// The compute capability whose code runs on the current device, 10 * major + minor: what the kernels were compiled
/// for and not what the device has, so that code compiled for compute_75 is launched on every card as on a T4. Asks
/// the CUDA runtime: once, when an op is prepared. Throws cuda_error when there is no device or no code for it.
WARPRANK_HIDDEN inline int target() { return backend::target(); }

/// How many multiprocessors the current device has: with the occupancy, how large a grid is useful. Asks the CUDA
/// runtime, too. Results must not depend on it.
WARPRANK_HIDDEN inline int num_multiprocessors() { return backend::num_multiprocessors(); }

/// Returns f(std::integral_constant<int, T>{}) for the greatest listed T that is not above `target`. Targets are listed
/// in ascending order. Throws invalid_argument when all of them are above.
template <int First, class F>
WARPRANK_HIDDEN decltype(auto) dispatch_target(int target, F&& f) {
  if (target < First) {
    throw invalid_argument("target", "sm_" + std::to_string(First) + " or later", "sm_" + std::to_string(target));
  }
  return std::forward<F>(f)(std::integral_constant<int, First>{});
}
template <int First, int Second, int... Later, class F>
WARPRANK_HIDDEN decltype(auto) dispatch_target(int target, F&& f) {
  static_assert(First < Second, "targets are listed in ascending order");
  if (target < Second) return dispatch_target<First>(target, std::forward<F>(f));
  return dispatch_target<Second, Later...>(target, std::forward<F>(f));
}

}  // namespace warprank::device
