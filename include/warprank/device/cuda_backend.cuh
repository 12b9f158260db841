// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The vocabulary in CUDA's intrinsics and PTX. Documented where it is public, in the headers beside this one.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "warprank/core/cuda_error.hpp"
#include "warprank/device/order.hpp"

namespace warprank::device::nowhere {

// In a namespace of its own: functions of the backend must not be found by their argument.
struct Here {
  static constexpr __host__ __device__ Here current() { return {}; }
};

}  // namespace warprank::device::nowhere

namespace warprank::device::backend {

using nowhere::Here;

// ---- Index

using Dim3 = dim3;

WARPRANK_DEVICE Dim3 thread_index() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
WARPRANK_DEVICE Dim3 block_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
WARPRANK_DEVICE Dim3 block_dim() { return blockDim; }
WARPRANK_DEVICE Dim3 grid_dim() { return gridDim; }

WARPRANK_DEVICE int fresh_thread_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(rank)::"memory");
  return rank;
}

// ---- Barriers and collectives

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
  asm volatile("griddepcontrol.launch_dependents;" :::);  // they wait for the end of this grid, not for this
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

// ---- Memory. PTX names an order, a scope and an operation by words, which asm takes as constant arrays ("C").

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

// ---- 16-bit floats

WARPRANK_DEVICE float half_to_float(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
WARPRANK_DEVICE uint16_t float_to_half(float value) { return __half_as_ushort(__float2half_rn(value)); }
WARPRANK_DEVICE uint16_t float_to_bfloat16(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
WARPRANK_DEVICE float bits_to_float(uint32_t bits) { return __uint_as_float(bits); }
WARPRANK_DEVICE uint32_t float_to_bits(float value) { return __float_as_uint(value); }
WARPRANK_DEVICE uint32_t fma_halves(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}
WARPRANK_DEVICE uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
  return __byte_perm(low, high, selector);
}
template <bool Relu>
WARPRANK_DEVICE uint32_t floats_to_halves(float low, float high) {
#if __CUDA_ARCH__ >= 800
  uint32_t pair;
  if constexpr (Relu) {
    asm("cvt.rn.satfinite.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  if constexpr (Relu) low = low < 0 ? 0 : low, high = high < 0 ? 0 : high;  // keeps NaN
  const uint32_t pair = static_cast<uint32_t>(float_to_half(low)) | static_cast<uint32_t>(float_to_half(high)) << 16;
  return pair - __vseteq2(pair & 0x7fff7fffu, 0x7c007c00u);  // infinity is one above the largest half
#endif
}

// ---- Approximate functions

WARPRANK_DEVICE float fast_exp(float x) { return __expf(x); }
WARPRANK_DEVICE float fast_divide(float a, float b) { return __fdividef(a, b); }

// ---- Tensor cores and copies

WARPRANK_DEVICE void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1], const float (&c)[4],
                                 Here) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(b[0]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
WARPRANK_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4],
                                  Here) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#else
  __trap();
#endif
}

template <bool Transposed>
struct TransposeWord {
  static constexpr char text[] = "";
};
template <>
struct TransposeWord<true> {
  static constexpr char text[] = ".trans";
};
template <bool Transposed, int Count>
WARPRANK_DEVICE void load_matrices(uint32_t (&fragment)[Count], const void* row, Here) {
  const uint32_t address = shared_address(row);
  if constexpr (Count == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1%2.shared.b16 {%0}, [%1];"
                 : "=r"(fragment[0])
                 : "r"(address), "C"(TransposeWord<Transposed>::text)
                 : "memory");
  } else if constexpr (Count == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2%3.shared.b16 {%0, %1}, [%2];"
                 : "=r"(fragment[0]), "=r"(fragment[1])
                 : "r"(address), "C"(TransposeWord<Transposed>::text)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4%5.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address), "C"(TransposeWord<Transposed>::text)
                 : "memory");
  }
}

WARPRANK_DEVICE void copy_async(void* shared, const void* global, Here) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)),
               "l"(__cvta_generic_to_global(global))
               : "memory");
#else
  *static_cast<uint4*>(shared) = *static_cast<const uint4*>(global);
#endif
}
WARPRANK_DEVICE void commit_async(Here) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int Pending>
WARPRANK_DEVICE void wait_async(Here) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

// ---- Shared memory

template <class Storage>
WARPRANK_DEVICE Storage& static_shared(Here) {
  __shared__ alignas(Storage) unsigned char bytes[sizeof(Storage)];
  return *reinterpret_cast<Storage*>(bytes);
}
WARPRANK_DEVICE void* dynamic_shared(Here) {
  extern __shared__ __align__(128) unsigned char warprank_dynamic_shared[];
  return warprank_dynamic_shared;
}

// ---- Launch

using Stream = cudaStream_t;

// A template, so that every unit may define it.
template <class = void>
WARPRANK_KERNEL(32, 1)
target_probe() {}

WARPRANK_HIDDEN inline int target() {
  cudaFuncAttributes attributes;
  check_cuda(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&target_probe<>)),
             "find code for the device");
  return attributes.ptxVersion;
}
WARPRANK_HIDDEN inline int num_multiprocessors() {
  int device = 0, count = 0;
  check_cuda(cudaGetDevice(&device), "find the current device");
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "count multiprocessors");
  return count;
}

/// Shared memory that a block may have when a kernel asks for it.
WARPRANK_HIDDEN inline int64_t max_shared_bytes() {
  int device = 0, bytes = 0;
  check_cuda(cudaGetDevice(&device), "find the current device");
  check_cuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "ask for shared memory");
  return bytes;
}

/// Always all that the device has: threads that launch a kernel with less must not take it from others.
WARPRANK_HIDDEN inline void allow_most_shared_memory(const void* entry) {
  cudaFuncAttributes attributes;
  check_cuda(cudaFuncGetAttributes(&attributes, entry), "find code for the device");
  const int most = static_cast<int>(max_shared_bytes() - static_cast<int64_t>(attributes.sharedSizeBytes));
  if (attributes.maxDynamicSharedSizeBytes < most) {
    check_cuda(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
               "allow a kernel more than 48 KB of shared memory");
  }
}

/// Whether code for the device was compiled in which a launch waits for the one before.
WARPRANK_HIDDEN inline bool can_overlap(const void* entry) {
  cudaFuncAttributes attributes;
  check_cuda(cudaFuncGetAttributes(&attributes, entry), "find code for the device");
  return attributes.ptxVersion >= 90;
}

template <class... Params>
WARPRANK_HIDDEN inline void launch_kernel(dim3 grid, dim3 block, int64_t shared_bytes, Stream stream, bool overlaps,
                                          Here, void (*kernel)(Params...), Params... args) {
  constexpr int64_t without_opt_in = 48 * 1024;  // static and dynamic
  constexpr int64_t most_static = 16 * 1024;     // of a kernel with dynamic memory; the executor sees to it
  const auto* entry = reinterpret_cast<const void*>(kernel);
  if (shared_bytes > without_opt_in - most_static) allow_most_shared_memory(entry);
  void* arguments[] = {static_cast<void*>(&args)..., nullptr};
  if (overlaps && can_overlap(entry)) {
    cudaLaunchAttribute overlap;
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = &overlap;
    config.numAttrs = 1;
    return check_cuda(cudaLaunchKernelExC(&config, entry, arguments), "launch a kernel");
  }
  check_cuda(cudaLaunchKernel(entry, grid, block, arguments, static_cast<size_t>(shared_bytes), stream),
             "launch a kernel");
}

}  // namespace warprank::device::backend
