// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tensor cores, and copies into the shared memory that they read.

#include <cstdint>

#include "warprank/device/cuda/memory.cuh"

namespace warprank { inline namespace v0 { namespace device::backend {

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

template <bool Transposed, int Count>
WARPRANK_DEVICE void load_matrices(uint32_t (&fragment)[Count], const void* row, Here) {
  const uint32_t address = shared_address(row);
#define WARPRANK_LDMATRIX(COUNT, TO, FROM, ...)                                                \
  if constexpr (Transposed) {                                                                  \
    asm volatile("ldmatrix.sync.aligned.m8n8." COUNT ".trans.shared.b16 {" TO "}, [" FROM "];" \
                 : __VA_ARGS__                                                                 \
                 : "r"(address)                                                                \
                 : "memory");                                                                  \
  } else {                                                                                     \
    asm volatile("ldmatrix.sync.aligned.m8n8." COUNT ".shared.b16 {" TO "}, [" FROM "];"       \
                 : __VA_ARGS__                                                                 \
                 : "r"(address)                                                                \
                 : "memory");                                                                  \
  }
  if constexpr (Count == 1) {
    WARPRANK_LDMATRIX("x1", "%0", "%1", "=r"(fragment[0]))
  } else if constexpr (Count == 2) {
    WARPRANK_LDMATRIX("x2", "%0, %1", "%2", "=r"(fragment[0]), "=r"(fragment[1]))
  } else {
    WARPRANK_LDMATRIX("x4", "%0, %1, %2, %3", "%4", "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]),
                      "=r"(fragment[3]))
  }
#undef WARPRANK_LDMATRIX
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

}}}  // namespace warprank::v0::device::backend
