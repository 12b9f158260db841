// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Loads, stores, atomic operations and fences. PTX names an order, a scope and an operation by words. The macros below
/// make string literals of them, since nvcc takes constant arrays ("C") only since CUDA 12.5 or so.

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "warprank/device/cuda/threads.cuh"
#include "warprank/device/order.hpp"

namespace warprank { inline namespace v0 { namespace device::backend {

enum class Access { weak, read_only, constant, once, ahead };
enum class AtomicOp { add, exchange, compare_exchange, min, max, wrap_increment };

// STATEMENT("gpu") for Scope::device.
#define WARPRANK_WITH_SCOPE(SCOPE, STATEMENT, ...) \
  if constexpr (SCOPE == Scope::block) {           \
    STATEMENT(__VA_ARGS__ "cta")                   \
  } else if constexpr (SCOPE == Scope::device) {   \
    STATEMENT(__VA_ARGS__ "gpu")                   \
  } else {                                         \
    STATEMENT(__VA_ARGS__ "sys")                   \
  }
// STATEMENT("acquire.gpu").
#define WARPRANK_WITH_ORDER(ORDER, SCOPE, STATEMENT)  \
  if constexpr (ORDER == Order::relaxed) {            \
    WARPRANK_WITH_SCOPE(SCOPE, STATEMENT, "relaxed.") \
  } else if constexpr (ORDER == Order::acquire) {     \
    WARPRANK_WITH_SCOPE(SCOPE, STATEMENT, "acquire.") \
  } else if constexpr (ORDER == Order::release) {     \
    WARPRANK_WITH_SCOPE(SCOPE, STATEMENT, "release.") \
  } else {                                            \
    WARPRANK_WITH_SCOPE(SCOPE, STATEMENT, "acq_rel.") \
  }

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

/// Without it, loads from an address that was itself loaded are generic.
template <class Value>
WARPRANK_DEVICE const Value* global(const Value* address) {
  __builtin_assume(__isGlobal(address));
  return address;
}

/// Volatile, to keep the order of the program.
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
WARPRANK_DEVICE int in_register(int value) {
  asm volatile("" : "+r"(value));
  return value;
}
template <class Value>
WARPRANK_DEVICE Value* in_register(Value* address) {
  asm volatile("" : "+l"(address));
  return address;
}

// .nc loads read memory that is not written while the kernel runs, and may be moved anywhere. If launches overlap, the
// previous launch still writes when this one begins: then read-only loads are plain loads, which stay behind the wait
// for it.
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
#define WARPRANK_LOAD(how) asm volatile("ld." how ".b32 %0, [%1];" : "=r"(bits) : "l"(address) : "memory");
    WARPRANK_WITH_ORDER(LoadOrder, LoadScope, WARPRANK_LOAD)
#undef WARPRANK_LOAD
    return value_of<Value>(bits);
  } else if constexpr (sizeof(Value) == 8) {
    unsigned long long bits;
#define WARPRANK_LOAD(how) asm volatile("ld." how ".b64 %0, [%1];" : "=l"(bits) : "l"(address) : "memory");
    WARPRANK_WITH_ORDER(LoadOrder, LoadScope, WARPRANK_LOAD)
#undef WARPRANK_LOAD
    return value_of<Value>(bits);
  } else {
    ulonglong2 bits;
#if CUDART_VERSION >= 12030  // PTX did not promise before that pairs are read at once, but the instruction is the same
#define WARPRANK_LOAD(how)                                                                        \
  asm volatile("{ .reg .b128 both; ld." how ".global.b128 both, [%2]; mov.b128 {%0, %1}, both; }" \
               : "=l"(bits.x), "=l"(bits.y)                                                       \
               : "l"(__cvta_generic_to_global(address))                                           \
               : "memory");
#else
#define WARPRANK_LOAD(how)                                \
  asm volatile("ld." how ".global.v2.b64 {%0, %1}, [%2];" \
               : "=l"(bits.x), "=l"(bits.y)               \
               : "l"(__cvta_generic_to_global(address))   \
               : "memory");
#endif
    WARPRANK_WITH_ORDER(LoadOrder, LoadScope, WARPRANK_LOAD)
#undef WARPRANK_LOAD
    return value_of<Value>(bits);
  }
}
template <Order StoreOrder, Scope StoreScope, class Value>
WARPRANK_DEVICE void store(Value* address, Value value, Here) {
  if constexpr (sizeof(Value) == 4) {
    const auto bits = value_of<unsigned>(value);
#define WARPRANK_STORE(how) asm volatile("st." how ".b32 [%0], %1;" ::"l"(address), "r"(bits) : "memory");
    WARPRANK_WITH_ORDER(StoreOrder, StoreScope, WARPRANK_STORE)
#undef WARPRANK_STORE
  } else if constexpr (sizeof(Value) == 8) {
    const auto bits = value_of<unsigned long long>(value);
#define WARPRANK_STORE(how) asm volatile("st." how ".b64 [%0], %1;" ::"l"(address), "l"(bits) : "memory");
    WARPRANK_WITH_ORDER(StoreOrder, StoreScope, WARPRANK_STORE)
#undef WARPRANK_STORE
  } else {
    const auto bits = value_of<ulonglong2>(value);
#if CUDART_VERSION >= 12030
#define WARPRANK_STORE(how)                                                           \
  asm volatile("{ .reg .b128 both; mov.b128 both, {%1, %2}; st." how                  \
               ".global.b128 [%0], both; }" ::"l"(__cvta_generic_to_global(address)), \
               "l"(bits.x), "l"(bits.y)                                               \
               : "memory");
#else
#define WARPRANK_STORE(how)                                                                                      \
  asm volatile("st." how ".global.v2.b64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(address)), "l"(bits.x), \
               "l"(bits.y)                                                                                       \
               : "memory");
#endif
    WARPRANK_WITH_ORDER(StoreOrder, StoreScope, WARPRANK_STORE)
#undef WARPRANK_STORE
  }
}

template <AtomicOp Op, Order AtomicOrder, Scope AtomicScope, class Value>
WARPRANK_DEVICE Value atomic(Value* address, Value operand, Here) {
  static_assert(std::is_same_v<Value, uint32_t> || std::is_same_v<Value, uint64_t>, "atomics are on unsigned integers");
#define WARPRANK_EXCHANGE(how) WARPRANK_ATOMIC(how ".exch.b")
#define WARPRANK_ADD(how) WARPRANK_ATOMIC(how ".add.u")
#define WARPRANK_MIN(how) WARPRANK_ATOMIC(how ".min.u")
#define WARPRANK_MAX(how) WARPRANK_ATOMIC(how ".max.u")
#define WARPRANK_INCREMENT(how) WARPRANK_ATOMIC(how ".inc.u")
#define WARPRANK_WITH_OPERATION()                                     \
  if constexpr (Op == AtomicOp::add) {                                \
    WARPRANK_WITH_ORDER(AtomicOrder, AtomicScope, WARPRANK_ADD)       \
  } else if constexpr (Op == AtomicOp::exchange) {                    \
    WARPRANK_WITH_ORDER(AtomicOrder, AtomicScope, WARPRANK_EXCHANGE)  \
  } else if constexpr (Op == AtomicOp::min) {                         \
    WARPRANK_WITH_ORDER(AtomicOrder, AtomicScope, WARPRANK_MIN)       \
  } else if constexpr (Op == AtomicOp::max) {                         \
    WARPRANK_WITH_ORDER(AtomicOrder, AtomicScope, WARPRANK_MAX)       \
  } else {                                                            \
    WARPRANK_WITH_ORDER(AtomicOrder, AtomicScope, WARPRANK_INCREMENT) \
  }
  if constexpr (sizeof(Value) == 4) {
    unsigned before;
#define WARPRANK_ATOMIC(how) \
  asm volatile("atom." how "32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(operand) : "memory");
    WARPRANK_WITH_OPERATION()
#undef WARPRANK_ATOMIC
    return before;
  } else {
    static_assert(Op != AtomicOp::wrap_increment, "tickets are 32-bit");
    unsigned long long before;
#define WARPRANK_ATOMIC(how) \
  asm volatile("atom." how "64 %0, [%1], %2;" : "=l"(before) : "l"(address), "l"(operand) : "memory");
    WARPRANK_WITH_OPERATION()
#undef WARPRANK_ATOMIC
    return before;
  }
#undef WARPRANK_WITH_OPERATION
#undef WARPRANK_EXCHANGE
#undef WARPRANK_ADD
#undef WARPRANK_MIN
#undef WARPRANK_MAX
#undef WARPRANK_INCREMENT
}
template <Order AtomicOrder, Scope AtomicScope, class Value>
WARPRANK_DEVICE Value compare_exchange(Value* address, Value expected, Value desired, Here) {
  static_assert(std::is_same_v<Value, uint32_t> || std::is_same_v<Value, uint64_t>, "atomics are on unsigned integers");
  if constexpr (sizeof(Value) == 4) {
    unsigned before;
#define WARPRANK_CAS(how)                                  \
  asm volatile("atom." how ".cas.b32 %0, [%1], %2, %3;"    \
               : "=r"(before)                              \
               : "l"(address), "r"(expected), "r"(desired) \
               : "memory");
    WARPRANK_WITH_ORDER(AtomicOrder, AtomicScope, WARPRANK_CAS)
#undef WARPRANK_CAS
    return before;
  } else {
    unsigned long long before;
#define WARPRANK_CAS(how)                                  \
  asm volatile("atom." how ".cas.b64 %0, [%1], %2, %3;"    \
               : "=l"(before)                              \
               : "l"(address), "l"(expected), "l"(desired) \
               : "memory");
    WARPRANK_WITH_ORDER(AtomicOrder, AtomicScope, WARPRANK_CAS)
#undef WARPRANK_CAS
    return before;
  }
}
template <Scope FenceScope>
WARPRANK_DEVICE void fence(Here) {
#define WARPRANK_FENCE(who) asm volatile("fence.acq_rel." who ";" ::: "memory");  // __threadfence() is stronger
  WARPRANK_WITH_SCOPE(FenceScope, WARPRANK_FENCE, )
#undef WARPRANK_FENCE
}

#undef WARPRANK_WITH_ORDER
#undef WARPRANK_WITH_SCOPE

WARPRANK_DEVICE void prefetch(const void* address, Here) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(address)));
}

}}}  // namespace warprank::v0::device::backend
