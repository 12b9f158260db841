// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The guarantees of a memory operation, in the terms of the PTX memory model.

namespace warprank { inline namespace v0 { namespace device {

/// The other accesses that a load, store or atomic orders.
enum class Order {
  relaxed,  ///< only the operation itself is indivisible
  acquire,  ///< later accesses see all writes that were released with the value read
  release,  ///< earlier accesses are visible to threads that acquire the value written
  acq_rel   ///< both; atomics only
};

/// The threads that take part: an order holds only between threads that are within both operations' scope.
enum class Scope { block, device, system };

}}}  // namespace warprank::v0::device
