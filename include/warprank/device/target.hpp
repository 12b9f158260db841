// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The card that the host chooses kernels for. A policy is a plain constexpr value chosen by the target:
///
///     template <int Target> inline constexpr Policy policy = ...;
///     dispatch_target<75, 80>(target(), [&](auto chosen) { launch(config, my_kernel<chosen()>, args...); });

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "warprank/core/error.hpp"
#include "warprank/device/backend.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// The compute capability whose code runs on the current device, 10 * major + minor. The kernels were compiled for it;
/// it is not the device's own, so that code compiled for compute_75 is launched on every card as on a T4. Asks the CUDA
/// runtime, so call it once, when an op is prepared. Throws cuda_error if there is no device or no code for it.
WARPRANK_HIDDEN inline int target() { return backend::target(); }

/// The number of multiprocessors of the current device; with the occupancy it gives the largest useful grid. Asks the
/// CUDA runtime, too. Results must not depend on it.
WARPRANK_HIDDEN inline int num_multiprocessors() { return backend::num_multiprocessors(); }

/// Shared memory, in bytes, that each of `blocks` blocks on one multiprocessor may have, both on a card of the target
/// and on the current device, which may be a later card with less. Asks the CUDA runtime.
WARPRANK_HIDDEN inline int64_t shared_limit(int target, int blocks) {
  const int64_t of_target = target >= 120  ? 99 << 10
                            : target >= 90 ? 227 << 10
                            : target >= 86 ? 99 << 10
                            : target >= 80 ? 163 << 10
                                           : 64 << 10;
  const int64_t most = std::min(of_target, backend::max_shared_bytes());
  const int64_t reserved = target >= 80 ? 1 << 10 : 0;  // for each block
  return ((most + reserved) / blocks - reserved) / 128 * 128;
}

/// Whether this unit is compiled for a target from `begin` on and below `end`. nvcc lists its targets; the executor,
/// and compilers without such a list, have all.
static constexpr bool has_code([[maybe_unused]] int begin, [[maybe_unused]] int end = std::numeric_limits<int>::max()) {
#if defined(__CUDA_ARCH_LIST__)
  for (const int architecture : {__CUDA_ARCH_LIST__}) {
    if (begin <= architecture / 10 && architecture / 10 < end) return true;
  }
  return false;
#else
  return true;
#endif
}

/// Returns f(std::integral_constant<int, T>{}) for the greatest listed T that is not above `target`. Targets are listed
/// in ascending order. Throws invalid_argument if all of them are above, or if there is no code for T: f is compiled
/// only for targets that can be chosen, so that a program for one card does not contain the kernels of the others. All
/// units of a program are compiled for the same architectures.
template <int First, int... Later, class F>
WARPRANK_HIDDEN decltype(auto) dispatch_target(int target, F&& f) {
  const auto refuse = [target](const std::string& expected) {
    raise(invalid_argument("target", expected, "sm_" + std::to_string(target)));
  };
  if (target < First) refuse("sm_" + std::to_string(First) + " or later");
  if constexpr (sizeof...(Later) == 0) {
    return std::forward<F>(f)(std::integral_constant<int, First>{});
  } else {
    constexpr int next = std::get<0>(std::make_tuple(Later...));
    static_assert(First < next, "targets are listed in ascending order");
    if constexpr (!has_code(First, next)) {
      return dispatch_target<Later...>(target, std::forward<F>(f));
    } else {
      if constexpr (has_code(next)) {
        if (target >= next) return dispatch_target<Later...>(target, std::forward<F>(f));
      } else if (target >= next) {
        refuse("below sm_" + std::to_string(next) + ", for which alone this was compiled");
      }
      return std::forward<F>(f)(std::integral_constant<int, First>{});
    }
  }
}

}}}  // namespace warprank::v0::device
