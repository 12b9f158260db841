// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tensor cores: FP16 factors, FP32 sums. All 32 lanes of a warp call together.
///
/// With g = lane / 4 and t = lane % 4, and pairs packed low first (half.hpp), a lane holds
///     A [16, k] row-major     a[0] = A[g][2t, 2t+1]        a[1] = A[g+8][2t, 2t+1]
///                             a[2] = A[g][2t+8, 2t+9]      a[3] = A[g+8][2t+8, 2t+9]     (k = 16 only)
///     B [k, 8]                b[0] = B[2t, 2t+1][g]        b[1] = B[2t+8, 2t+9][g]       (k = 16 only)
///     C, D [16, 8]            c[0], c[1] = C[g][2t, 2t+1]  c[2], c[3] = C[g+8][2t, 2t+1]
/// (PTX ISA, "Matrix Fragments for mma.m16n8k8" and "mma.m16n8k16".)

#include <cstdint>

#include "warprank/device/backend.hpp"

namespace warprank { inline namespace v0 { namespace device {

/// D = A B + C with k = 8. Every target; `d` may be `c`.
WARPRANK_DEVICE void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1], const float (&c)[4],
                                 Here here = Here::current()) {
  backend::mma_m16n8k8(d, a, b, c, here);
}
/// D = A B + C with k = 16. sm_80 and later: on older targets it traps.
WARPRANK_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4],
                                  Here here = Here::current()) {
  backend::mma_m16n8k16(d, a, b, c, here);
}

/// Loads `Count` (1, 2 or 4) matrices of 8 x 8 halves from shared memory. Lane 8 m + r gives the address of row r of
/// matrix m: 16 bytes, aligned to 16; the addresses of lanes beyond 8 Count are not used. The lane receives
/// fragment[m] = M[g][2t, 2t+1], or M[2t, 2t+1][g] when Transposed: the layouts of A and, from a B that is stored
/// row-major, of B.
template <bool Transposed = false, int Count>
WARPRANK_DEVICE void load_matrices(uint32_t (&fragment)[Count], const void* row, Here here = Here::current()) {
  static_assert(Count == 1 || Count == 2 || Count == 4);
  backend::load_matrices<Transposed>(fragment, row, here);
}

}}}  // namespace warprank::v0::device
