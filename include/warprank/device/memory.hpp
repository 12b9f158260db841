// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Loads, stores and atomics. A plain `a[i]` in a kernel is a weak access as well, but an executor counts sectors and
/// names lines only for these functions, so kernels use them for global memory.

#include <cstdint>
#include <type_traits>

#include "warprank/device/backend.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// `Size` values that one instruction loads or stores: 1, 2, 4, 8 or 16 bytes in all, aligned to their size.
template <class Value, int Size>
struct alignas(sizeof(Value) * Size) Vector {
  static_assert(std::is_trivially_copyable_v<Value>);
  static_assert(sizeof(Value) * Size <= 16 && (sizeof(Value) * Size & (sizeof(Value) * Size - 1)) == 0);
  static constexpr int size = Size;

  Value values[Size];

  WARPRANK_DEVICE Value& operator[](int i) { return values[i]; }
  WARPRANK_DEVICE const Value& operator[](int i) const { return values[i]; }
};

/// Weak load of a value of 1, 2, 4, 8 or 16 bytes. The compiler may merge and reorder it; a barrier, a launch or an
/// acquire must order the write of the value before it.
template <class Value>
WARPRANK_DEVICE Value load(const Value* address, Here here = Here::current()) {
  return backend::load<backend::Access::weak>(address, here);
}
/// As load, through the non-coherent path: only for memory that no launch in flight writes.
template <class Value>
WARPRANK_DEVICE Value load_read_only(const Value* address, Here here = Here::current()) {
  return backend::load<backend::Access::read_only>(address, here);
}
/// As load_read_only, for memory that the previous launch has not written either: the compiler may move the load before
/// the wait for that launch (sync.hpp).
template <class Value>
WARPRANK_DEVICE Value load_constant(const Value* address, Here here = Here::current()) {
  return backend::load<backend::Access::constant>(address, here);
}
template <class Value>
WARPRANK_DEVICE void store(Value* address, Value value, Here here = Here::current()) {
  backend::store(address, value, here);
}

/// The same address, which was itself loaded from memory, marked as one of global memory.
template <class Value>
WARPRANK_DEVICE const Value* global(const Value* address) {
  return backend::global(address);
}

/// Weak accesses to `Size` neighbouring values by one instruction; `address` is aligned to all of them.
template <int Size, class Value>
WARPRANK_DEVICE Vector<Value, Size> load_vector(const Value* address, Here here = Here::current()) {
  return backend::load<backend::Access::weak>(reinterpret_cast<const Vector<Value, Size>*>(address), here);
}
template <int Size, class Value>
WARPRANK_DEVICE Vector<Value, Size> load_vector_read_only(const Value* address, Here here = Here::current()) {
  return backend::load<backend::Access::read_only>(reinterpret_cast<const Vector<Value, Size>*>(address), here);
}
template <int Size, class Value>
WARPRANK_DEVICE Vector<Value, Size> load_vector_constant(const Value* address, Here here = Here::current()) {
  return backend::load<backend::Access::constant>(reinterpret_cast<const Vector<Value, Size>*>(address), here);
}
/// As load_vector_constant, for values that are hardly read again soon: the first-level cache does not keep 8 or 16
/// bytes.
template <int Size, class Value>
WARPRANK_DEVICE Vector<Value, Size> load_vector_once(const Value* address, Here here = Here::current()) {
  return backend::load<backend::Access::once>(reinterpret_cast<const Vector<Value, Size>*>(address), here);
}
template <int Size, class Value>
WARPRANK_DEVICE void store_vector(Value* address, const Vector<Value, Size>& values, Here here = Here::current()) {
  backend::store(reinterpret_cast<Vector<Value, Size>*>(address), values, here);
}

/// As load, of 4, 8 or 16 bytes, for several loads that are in flight at once: the compiler keeps these loads in
/// program order, and before any branch behind them. A kernel may load a value before it knows whether it needs it:
/// uninitialised memory may be read if the value is not used.
template <class Value>
WARPRANK_DEVICE Value load_ahead(const Value* address, Here here = Here::current()) {
  static_assert(sizeof(Value) == 4 || sizeof(Value) == 8 || sizeof(Value) == 16);
  return backend::load<backend::Access::ahead>(address, here);
}
template <int Size, class Value>
WARPRANK_DEVICE Vector<Value, Size> load_vector_ahead(const Value* address, Here here = Here::current()) {
  return load_ahead(reinterpret_cast<const Vector<Value, Size>*>(address), here);
}
/// The end of loads ahead: the compiler moves no use of the value before this. Without it, a compiler may compute the
/// minimum of a count and a capacity as soon as the count is requested, and so wait for the count before it requests
/// the rest.
WARPRANK_DEVICE void use_from_here(int64_t& value) { backend::use_from_here(value); }
/// A number in a register, for a kernel's parameter: the compiler does not read the constant again at each use, which
/// takes as long as shared memory, nor compute values that depend on it before a loop.
WARPRANK_DEVICE int in_register(int value) { return backend::in_register(value); }
/// The same for an address, which the compiler does not compute again from its parts.
template <class Value>
WARPRANK_DEVICE Value* in_register(Value* address) {
  return backend::in_register(address);
}

/// Prefetches the 128 bytes around an address to the second-level cache. A hint: it reads nothing.
WARPRANK_DEVICE void prefetch(const void* address, Here here = Here::current()) { backend::prefetch(address, here); }

/// Indivisible load of 4, 8 or 16 bytes; bypasses L1 for scopes above the block. Relaxed or acquire.
template <Order LoadOrder, Scope LoadScope, class Value>
WARPRANK_DEVICE Value load(const Value* address, Here here = Here::current()) {
  static_assert(LoadOrder == Order::relaxed || LoadOrder == Order::acquire, "a load releases nothing");
  static_assert(sizeof(Value) == 4 || sizeof(Value) == 8 || sizeof(Value) == 16);
  return backend::load<LoadOrder, LoadScope>(address, here);
}
/// Indivisible store of 4, 8 or 16 bytes. Relaxed or release.
template <Order StoreOrder, Scope StoreScope, class Value>
WARPRANK_DEVICE void store(Value* address, Value value, Here here = Here::current()) {
  static_assert(StoreOrder == Order::relaxed || StoreOrder == Order::release, "a store acquires nothing");
  static_assert(sizeof(Value) == 4 || sizeof(Value) == 8 || sizeof(Value) == 16);
  backend::store<StoreOrder, StoreScope>(address, value, here);
}

/// Atomics on uint32_t and uint64_t, in global or shared memory; all return the previous value. There are none on
/// floating point: sums of floats must not depend on the order of threads.
template <Order AtomicOrder, Scope AtomicScope, class Value>
WARPRANK_DEVICE Value atomic_add(Value* address, Value value, Here here = Here::current()) {
  return backend::atomic<backend::AtomicOp::add, AtomicOrder, AtomicScope>(address, value, here);
}
template <Order AtomicOrder, Scope AtomicScope, class Value>
WARPRANK_DEVICE Value atomic_exchange(Value* address, Value value, Here here = Here::current()) {
  return backend::atomic<backend::AtomicOp::exchange, AtomicOrder, AtomicScope>(address, value, here);
}
template <Order AtomicOrder, Scope AtomicScope, class Value>
WARPRANK_DEVICE Value atomic_min(Value* address, Value value, Here here = Here::current()) {
  return backend::atomic<backend::AtomicOp::min, AtomicOrder, AtomicScope>(address, value, here);
}
template <Order AtomicOrder, Scope AtomicScope, class Value>
WARPRANK_DEVICE Value atomic_max(Value* address, Value value, Here here = Here::current()) {
  return backend::atomic<backend::AtomicOp::max, AtomicOrder, AtomicScope>(address, value, here);
}
/// Stores `desired` when the value is `expected`.
template <Order AtomicOrder, Scope AtomicScope, class Value>
WARPRANK_DEVICE Value compare_exchange(Value* address, Value expected, Value desired, Here here = Here::current()) {
  return backend::compare_exchange<AtomicOrder, AtomicScope>(address, expected, desired, here);
}
/// Counts up to `last`, then starts again at 0: a ticket whose last holder leaves it ready for the next launch.
/// 32-bit only, relaxed or ordered by `TicketOrder`.
template <Order TicketOrder, Scope TicketScope>
WARPRANK_DEVICE uint32_t take_ticket(uint32_t* address, uint32_t last, Here here = Here::current()) {
  return backend::atomic<backend::AtomicOp::wrap_increment, TicketOrder, TicketScope>(address, last, here);
}

}}}  // namespace warprank::v0::device
