// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Loads, stores, atomic operations and fences. PTX names an order, a scope and an operation by words, which asm takes
/// as constant arrays ("C").

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "warprank/device/cuda/threads.cuh"
#include "warprank/device/order.hpp"

namespace warprank::device::backend {

enum class Access { weak, read_only, constant, once, ahead };
enum class AtomicOp { add, exchange, compare_exchange, min, max, wrap_increment };

template <Order>
struct OrderWord;
template <>
struct OrderWord<Order::relaxed> {
  static constexpr char text[] = "relaxed";
};
template <>
struct OrderWord<Order::acquire> {
  static constexpr char text[] = "acquire";
};
template <>
struct OrderWord<Order::release> {
  static constexpr char text[] = "release";
};
template <>
struct OrderWord<Order::acq_rel> {
  static constexpr char text[] = "acq_rel";
};

template <Scope>
struct ScopeWord;
template <>
struct ScopeWord<Scope::block> {
  static constexpr char text[] = "cta";
};
template <>
struct ScopeWord<Scope::device> {
  static constexpr char text[] = "gpu";
};
template <>
struct ScopeWord<Scope::system> {
  static constexpr char text[] = "sys";
};

/// An atomic operation with its type, by width.
template <AtomicOp>
struct AtomicWord;
template <>
struct AtomicWord<AtomicOp::add> {
  static constexpr char text32[] = "add.u32";
  static constexpr char text64[] = "add.u64";
};
template <>
struct AtomicWord<AtomicOp::exchange> {
  static constexpr char text32[] = "exch.b32";
  static constexpr char text64[] = "exch.b64";
};
template <>
struct AtomicWord<AtomicOp::min> {
  static constexpr char text32[] = "min.u32";
  static constexpr char text64[] = "min.u64";
};
template <>
struct AtomicWord<AtomicOp::max> {
  static constexpr char text32[] = "max.u32";
  static constexpr char text64[] = "max.u64";
};
template <>
struct AtomicWord<AtomicOp::wrap_increment> {
  static constexpr char text32[] = "inc.u32";
};

/// The unsigned type or CUDA vector that one instruction moves.
template <int Bytes>
struct Word;
template <>
struct Word<1> {
  using type = unsigned char;
};
template <>
struct Word<2> {
  using type = unsigned short;
};
template <>
struct Word<4> {
  using type = unsigned;
};
template <>
struct Word<8> {
  using type = unsigned long long;
};
template <>
struct Word<16> {
  using type = uint4;
};

/// The 32-bit address that instructions on shared memory take.
WARPRANK_DEVICE uint32_t shared_address(const void* address) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(address));
}

template <class Value, class Bits>
WARPRANK_DEVICE Value value_of(Bits bits) {
  static_assert(sizeof(Value) == sizeof(Bits));
  Value value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/// Volatile, so that the order of the program stays.
WARPRANK_DEVICE unsigned load_in_order(const unsigned* address) {
  unsigned bits;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(bits) : "l"(__cvta_generic_to_global(address)));
  return bits;
}
WARPRANK_DEVICE unsigned long long load_in_order(const unsigned long long* address) {
  unsigned long long bits;
  asm volatile("ld.global.b64 %0, [%1];" : "=l"(bits) : "l"(__cvta_generic_to_global(address)));
  return bits;
}
WARPRANK_DEVICE uint4 load_in_order(const uint4* address) {
  uint4 bits;
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "l"(__cvta_generic_to_global(address)));
  return bits;
}
WARPRANK_DEVICE void use_from_here(int64_t& value) { asm volatile("" : "+l"(value)); }

// .nc loads are of what nobody writes while the kernel runs, and may be moved anywhere. Where launches overlap, the one
// before still writes when this one begins: there, read-only loads are plain ones, which stay behind the wait for it.
#if __CUDA_ARCH__ >= 900
inline constexpr bool may_overlap = true;
#else
inline constexpr bool may_overlap = false;
#endif

template <Access Kind, class Value>
WARPRANK_DEVICE Value load(const Value* address, Here) {
  using Bits = typename Word<sizeof(Value)>::type;
  const auto* bits = reinterpret_cast<const Bits*>(address);
  // Through a value: a copy from the address itself would be made byte by byte.
  if constexpr (Kind == Access::ahead) {
    return value_of<Value>(load_in_order(bits));
  } else if constexpr (Kind == Access::once && sizeof(Value) == 16) {
    uint4 loaded;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(loaded.x), "=r"(loaded.y), "=r"(loaded.z), "=r"(loaded.w)
        : "l"(__cvta_generic_to_global(address)));
    return value_of<Value>(loaded);
  } else if constexpr (Kind == Access::once && sizeof(Value) == 8) {
    unsigned long long loaded;
    asm("ld.global.nc.L1::no_allocate.u64 %0, [%1];" : "=l"(loaded) : "l"(__cvta_generic_to_global(address)));
    return value_of<Value>(loaded);
  } else {
    const bool is_plain = Kind == Access::weak || (Kind == Access::read_only && may_overlap);
    const Bits loaded = is_plain ? *bits : __ldg(bits);
    return value_of<Value>(loaded);
  }
}
template <class Value>
WARPRANK_DEVICE void store(Value* address, Value value, Here) {
  using Bits = typename Word<sizeof(Value)>::type;
  *reinterpret_cast<Bits*>(address) = value_of<Bits>(value);
}

template <Order LoadOrder, Scope LoadScope, class Value>
WARPRANK_DEVICE Value load(const Value* address, Here) {
  if constexpr (sizeof(Value) == 4) {
    unsigned bits;
    asm volatile("ld.%2.%3.b32 %0, [%1];"
                 : "=r"(bits)
                 : "l"(address), "C"(OrderWord<LoadOrder>::text), "C"(ScopeWord<LoadScope>::text)
                 : "memory");
    return value_of<Value>(bits);
  } else if constexpr (sizeof(Value) == 8) {
    unsigned long long bits;
    asm volatile("ld.%2.%3.b64 %0, [%1];"
                 : "=l"(bits)
                 : "l"(address), "C"(OrderWord<LoadOrder>::text), "C"(ScopeWord<LoadScope>::text)
                 : "memory");
    return value_of<Value>(bits);
  } else {
    ulonglong2 bits;
    asm volatile("{ .reg .b128 both; ld.%3.%4.global.b128 both, [%2]; mov.b128 {%0, %1}, both; }"
                 : "=l"(bits.x), "=l"(bits.y)
                 : "l"(__cvta_generic_to_global(address)), "C"(OrderWord<LoadOrder>::text),
                   "C"(ScopeWord<LoadScope>::text)
                 : "memory");
    return value_of<Value>(bits);
  }
}
template <Order StoreOrder, Scope StoreScope, class Value>
WARPRANK_DEVICE void store(Value* address, Value value, Here) {
  if constexpr (sizeof(Value) == 4) {
    asm volatile("st.%2.%3.b32 [%0], %1;" ::"l"(address), "r"(value_of<unsigned>(value)),
                 "C"(OrderWord<StoreOrder>::text), "C"(ScopeWord<StoreScope>::text)
                 : "memory");
  } else if constexpr (sizeof(Value) == 8) {
    asm volatile("st.%2.%3.b64 [%0], %1;" ::"l"(address), "l"(value_of<unsigned long long>(value)),
                 "C"(OrderWord<StoreOrder>::text), "C"(ScopeWord<StoreScope>::text)
                 : "memory");
  } else {
    const auto bits = value_of<ulonglong2>(value);
    asm volatile("{ .reg .b128 both; mov.b128 both, {%1, %2}; st.%3.%4.global.b128 [%0], both; }" ::"l"(
                     __cvta_generic_to_global(address)),
                 "l"(bits.x), "l"(bits.y), "C"(OrderWord<StoreOrder>::text), "C"(ScopeWord<StoreScope>::text)
                 : "memory");
  }
}

template <AtomicOp Op, Order AtomicOrder, Scope AtomicScope, class Value>
WARPRANK_DEVICE Value atomic(Value* address, Value operand, Here) {
  static_assert(std::is_same_v<Value, uint32_t> || std::is_same_v<Value, uint64_t>, "atomics are on unsigned integers");
  if constexpr (sizeof(Value) == 4) {
    unsigned before;
    asm volatile("atom.%3.%4.%5 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(address), "r"(operand), "C"(OrderWord<AtomicOrder>::text), "C"(ScopeWord<AtomicScope>::text),
                   "C"(AtomicWord<Op>::text32)
                 : "memory");
    return before;
  } else {
    static_assert(Op != AtomicOp::wrap_increment, "tickets are 32-bit");
    unsigned long long before;
    asm volatile("atom.%3.%4.%5 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(address), "l"(operand), "C"(OrderWord<AtomicOrder>::text), "C"(ScopeWord<AtomicScope>::text),
                   "C"(AtomicWord<Op>::text64)
                 : "memory");
    return before;
  }
}
template <Order AtomicOrder, Scope AtomicScope, class Value>
WARPRANK_DEVICE Value compare_exchange(Value* address, Value expected, Value desired, Here) {
  static_assert(std::is_same_v<Value, uint32_t> || std::is_same_v<Value, uint64_t>, "atomics are on unsigned integers");
  if constexpr (sizeof(Value) == 4) {
    unsigned before;
    asm volatile("atom.%4.%5.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(address), "r"(expected), "r"(desired), "C"(OrderWord<AtomicOrder>::text),
                   "C"(ScopeWord<AtomicScope>::text)
                 : "memory");
    return before;
  } else {
    unsigned long long before;
    asm volatile("atom.%4.%5.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(before)
                 : "l"(address), "l"(expected), "l"(desired), "C"(OrderWord<AtomicOrder>::text),
                   "C"(ScopeWord<AtomicScope>::text)
                 : "memory");
    return before;
  }
}
template <Scope FenceScope>
WARPRANK_DEVICE void fence(Here) {
  asm volatile("fence.acq_rel.%0;" ::"C"(ScopeWord<FenceScope>::text) : "memory");  // __threadfence() is stronger
}

WARPRANK_DEVICE void prefetch(const void* address, Here) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(address)));
}

}  // namespace warprank::device::backend
