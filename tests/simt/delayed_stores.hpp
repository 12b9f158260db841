// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Relaxed stores become visible later than they are made, in any order between addresses, unless a fence, a release or
/// a barrier comes between. Only in the race build: elsewhere the thread's own plain loads cannot be told of them.

#include "simt/block.hpp"

namespace simt {

/// Makes a store now or later. The value carries `release` from when it is visible.
void store(Thread& thread, void* address, const void* value, int bytes, const race::Release& release, bool may_delay);
/// Makes all of the thread's stores visible.
void flush(Thread& thread);
/// Makes one of them visible.
void flush_one(Thread& thread, Random& random);
/// Makes them visible when one of them lies in [address, address + bytes): a thread sees its own stores.
void flush_overlapping(Thread& thread, const void* address, int64_t bytes);

}  // namespace simt
