// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Threads by number, barriers and collectives; shared memory.

#include <cuda_runtime.h>

#include <cstdint>

#include "warprank/device/cuda/device.cuh"

namespace warprank { inline namespace v0 { namespace device::backend {

WARPRANK_DEVICE Dim3 thread_index() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
WARPRANK_DEVICE Dim3 block_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
WARPRANK_DEVICE Dim3 block_dim() { return blockDim; }
WARPRANK_DEVICE Dim3 grid_dim() { return gridDim; }

WARPRANK_DEVICE int fresh_thread_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(rank)::"memory");
  return rank;
}

enum class Reduction { none, count, any, all };
enum class Shuffle { from, up, down, butterfly };

WARPRANK_DEVICE int sync_block(Reduction reduction, bool predicate, Here) {
  if (reduction == Reduction::count) return __syncthreads_count(predicate);
  if (reduction == Reduction::any) return __syncthreads_or(predicate);
  if (reduction == Reduction::all) return __syncthreads_and(predicate);
  __syncthreads();
  return 0;
}
WARPRANK_DEVICE void sync_warp(uint32_t mask, Here) { __syncwarp(mask); }
WARPRANK_DEVICE void wait_for_previous_launch(Here) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" :::);  // dependents wait for the end of this grid, not for this
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <Shuffle Kind, class Value>
WARPRANK_DEVICE Value shuffle(uint32_t mask, Value value, int operand, int width, Here) {
  static_assert(std::is_trivially_copyable_v<Value> && (sizeof(Value) == 4 || sizeof(Value) == 8));
  std::conditional_t<sizeof(Value) == 4, unsigned, unsigned long long> bits;
  memcpy(&bits, &value, sizeof bits);
  if constexpr (Kind == Shuffle::from) bits = __shfl_sync(mask, bits, operand, width);
  if constexpr (Kind == Shuffle::up) bits = __shfl_up_sync(mask, bits, operand, width);
  if constexpr (Kind == Shuffle::down) bits = __shfl_down_sync(mask, bits, operand, width);
  if constexpr (Kind == Shuffle::butterfly) bits = __shfl_xor_sync(mask, bits, operand, width);
  memcpy(&value, &bits, sizeof bits);
  return value;
}
WARPRANK_DEVICE uint32_t ballot(uint32_t mask, bool predicate, Here) { return __ballot_sync(mask, predicate); }
template <class Value>
WARPRANK_DEVICE uint32_t match(uint32_t mask, Value value, Here) {
  return __match_any_sync(mask, value);
}
WARPRANK_DEVICE int count_bits(uint32_t bits) { return __popc(bits); }
WARPRANK_DEVICE int first_bit(uint32_t bits) { return __ffs(static_cast<int>(bits)) - 1; }
WARPRANK_DEVICE uint32_t reduce_add(uint32_t mask, uint32_t value, Here) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(mask, value);
#else
  uint32_t sum = 0;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) sum += __shfl_sync(mask, value, __ffs(rest) - 1);
  return sum;
#endif
}

template <class Storage>
WARPRANK_DEVICE Storage& static_shared(Here) {
  __shared__ alignas(Storage) unsigned char bytes[sizeof(Storage)];
  return *reinterpret_cast<Storage*>(bytes);
}
WARPRANK_DEVICE void* dynamic_shared(Here) {
  extern __shared__ __align__(128) unsigned char warprank_dynamic_shared[];
  return warprank_dynamic_shared;
}

}}}  // namespace warprank::v0::device::backend
