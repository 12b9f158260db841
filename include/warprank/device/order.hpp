// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a memory operation promises, in the words of the PTX memory model.

namespace warprank { inline namespace v0 { namespace device {

/// What a load, store or atomic orders around itself.
enum class Order {
  relaxed,  ///< only the operation itself is indivisible
  acquire,  ///< later accesses see what was released before the value read
  release,  ///< earlier accesses are visible to whoever acquires the value written
  acq_rel   ///< both; atomics only
};

/// Who takes part: an order holds only between threads that are within both operations' scope.
enum class Scope { block, device, system };

}}}  // namespace warprank::v0::device
