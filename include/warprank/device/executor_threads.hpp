// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The vocabulary of kernels in plain C++, for an executor on the CPU, which defines the functions that are only
/// declared here. A C++ compiler of the host's part of a program with CUDA also reads kernels this way, but runs none.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/device/host_backend.hpp"
#include "warprank/device/order.hpp"

namespace warprank { inline namespace v0 { namespace device::backend {

// ---- Index

/// The place of the running thread.
struct Position {
  Dim3 thread, block, block_dim, grid_dim;
};
extern const Position* position;

inline Dim3 thread_index() { return position->thread; }
inline int fresh_thread_rank() { return static_cast<int>(position->thread.x); }
inline Dim3 block_index() { return position->block; }
inline Dim3 block_dim() { return position->block_dim; }
inline Dim3 grid_dim() { return position->grid_dim; }

// ---- Barriers and collectives

enum class Reduction { none, count, any, all };
enum class Shuffle { from, up, down, butterfly };

int sync_block(Reduction reduction, bool predicate, Here here);
void sync_warp(uint32_t mask, Here here);
void wait_for_previous_launch(Here here);
void shuffle_bytes(uint32_t mask, const void* value, void* result, int bytes, Shuffle kind, int operand, int width,
                   Here here);
uint32_t ballot(uint32_t mask, bool predicate, Here here);
uint32_t match(uint32_t mask, uint64_t value, Here here);
uint32_t reduce_add(uint32_t mask, uint32_t value, Here here);

template <Shuffle Kind, class Value>
Value shuffle(uint32_t mask, Value value, int operand, int width, Here here) {
  static_assert(std::is_trivially_copyable_v<Value> && (sizeof(Value) == 4 || sizeof(Value) == 8));
  Value result;
  shuffle_bytes(mask, &value, &result, sizeof value, Kind, operand, width, here);
  return result;
}
inline int count_bits(uint32_t bits) { return __builtin_popcount(bits); }
inline int first_bit(uint32_t bits) { return __builtin_ctz(bits); }

// ---- Memory: `bytes` is the width of one access, and its alignment

enum class Access { weak, read_only, constant, once, ahead };
enum class AtomicOp { add, exchange, compare_exchange, min, max, wrap_increment };

void load_bytes(const void* address, void* value, int bytes, Access access, Here here);
void store_bytes(void* address, const void* value, int bytes, Here here);
void load_ordered(const void* address, void* value, int bytes, Order order, Scope scope, Here here);
void store_ordered(void* address, const void* value, int bytes, Order order, Scope scope, Here here);
uint64_t atomic(AtomicOp op, void* address, int bytes, uint64_t operand, uint64_t expected, Order order, Scope scope,
                Here here);
void fence(Scope scope, Here here);
void prefetch(const void* address, Here here);

template <Access Kind, class Value>
Value load(const Value* address, Here here) {
  Value value;
  load_bytes(address, &value, sizeof value, Kind == Access::once ? Access::constant : Kind, here);
  return value;
}
inline void use_from_here(int64_t&) {}
inline int in_register(int value) { return value; }
template <class Value>
Value* in_register(Value* address) {
  return address;
}
template <class Value>
const Value* global(const Value* address) {
  return address;
}
template <class Value>
void store(Value* address, const Value& value, Here here) {
  store_bytes(address, &value, sizeof value, here);
}
template <Order LoadOrder, Scope LoadScope, class Value>
Value load(const Value* address, Here here) {
  Value value;
  load_ordered(address, &value, sizeof value, LoadOrder, LoadScope, here);
  return value;
}
template <Order StoreOrder, Scope StoreScope, class Value>
void store(Value* address, const Value& value, Here here) {
  store_ordered(address, &value, sizeof value, StoreOrder, StoreScope, here);
}
template <AtomicOp Op, Order AtomicOrder, Scope AtomicScope, class Value>
Value atomic(Value* address, Value operand, Here here) {
  static_assert(std::is_same_v<Value, uint32_t> || std::is_same_v<Value, uint64_t>, "atomics are on unsigned integers");
  return static_cast<Value>(atomic(Op, address, sizeof(Value), operand, 0, AtomicOrder, AtomicScope, here));
}
template <Order AtomicOrder, Scope AtomicScope, class Value>
Value compare_exchange(Value* address, Value expected, Value desired, Here here) {
  static_assert(std::is_same_v<Value, uint32_t> || std::is_same_v<Value, uint64_t>, "atomics are on unsigned integers");
  return static_cast<Value>(
      atomic(AtomicOp::compare_exchange, address, sizeof(Value), desired, expected, AtomicOrder, AtomicScope, here));
}
template <Scope FenceScope>
void fence(Here here) {
  fence(FenceScope, here);
}

// ---- 16-bit floats

inline float divide_by_one_to_two(float a, float b) { return a / b; }
inline float half_to_float(uint16_t bits) { return to_float(float16{bits}); }
inline float low_half_to_float(uint32_t pair) { return half_to_float(static_cast<uint16_t>(pair)); }
inline float high_half_to_float(uint32_t pair) { return half_to_float(static_cast<uint16_t>(pair >> 16)); }
inline uint16_t float_to_half(float value) { return to_float16(value).bits; }
inline uint16_t float_to_bfloat16(float value) { return to_bfloat16(value).bits; }
inline float bits_to_float(uint32_t bits) { return bits_float(bits); }
inline uint32_t float_to_bits(float value) { return float_bits(value); }
/// a b + c, rounded once: the sum in double is exact wherever its rounding to a half depends on it, and the step
/// through float rounds to odd.
inline uint16_t fma_half(uint16_t a, uint16_t b, uint16_t c) {
  const double product = static_cast<double>(half_to_float(a)) * half_to_float(b), sum = product + half_to_float(c);
  if (sum != sum) return 0x7fff;
  const auto near = static_cast<float>(sum);
  const uint32_t bits = float_bits(near);
  const bool is_odd_already = near == sum || bits % 2 == 1 || std::fabs(near) > std::numeric_limits<float>::max();
  if (is_odd_already) return float_to_half(near);
  return float_to_half(bits_float(std::fabs(near) < std::fabs(sum) ? bits + 1 : bits - 1));
}
inline uint32_t fma_halves(uint32_t a, uint32_t b, uint32_t c) {
  const auto low = [](uint32_t pair) { return static_cast<uint16_t>(pair & 0xffffu); };
  const uint32_t high = fma_half(low(a >> 16), low(b >> 16), low(c >> 16));
  return fma_half(low(a), low(b), low(c)) | high << 16;
}
inline uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  uint32_t chosen = 0;
  for (int i = 0; i < 4; ++i) {
    chosen |= static_cast<uint32_t>(both >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
  }
  return chosen;
}
template <bool Relu>
uint32_t floats_to_halves(float low, float high) {
  const auto narrowed = [](float value) -> uint32_t {
    if (value != value) return 0x7fff;
    if (Relu && !(value > 0)) return 0;
    return to_float16(value < -max_float16 ? -max_float16 : value > max_float16 ? max_float16 : value).bits;
  };
  return narrowed(low) | narrowed(high) << 16;
}

// ---- Approximate functions

inline float fast_exp(float x) { return std::exp(x); }
inline float fast_divide(float a, float b) { return a / b; }
inline float fast_reciprocal_sqrt(float x) { return 1 / std::sqrt(x); }

// ---- Tensor cores and copies

void mma(int k, float* d, const uint32_t* a, const uint32_t* b, const float* c, Here here);
void load_matrices_from(int count, bool transposed, uint32_t* fragment, const void* row, Here here);
void copy_async(void* shared, const void* global, Here here);
void commit_async(Here here);
void wait_for_async(int pending_groups, Here here);

inline void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1], const float (&c)[4], Here here) {
  mma(8, d, a, b, c, here);
}
inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4],
                         Here here) {
  mma(16, d, a, b, c, here);
}
template <bool Transposed, int Count>
void load_matrices(uint32_t (&fragment)[Count], const void* row, Here here) {
  load_matrices_from(Count, Transposed, fragment, row, here);
}
template <int Pending>
void wait_async(Here here) {
  wait_for_async(Pending, here);
}

// ---- Shared memory

void* static_shared_bytes(const void* key, int64_t bytes, int64_t alignment, Here here);
void* dynamic_shared(Here here);

template <class Storage>
inline constexpr char storage_key = 0;
template <class Storage>
Storage& static_shared(Here here) {
  return *static_cast<Storage*>(static_shared_bytes(&storage_key<Storage>, sizeof(Storage), alignof(Storage), here));
}

}}}  // namespace warprank::v0::device::backend
