// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The products of linear layers on the host, and of ops that are computed as linear layers:
///
/// | Precision | Products                  | Sums | Multiply-adds of an instruction |
/// |-----------|---------------------------|------|---------------------------------|
/// | fp32      | of FP32 values            | FP32 | one for each lane               |
/// | bf16      | of values rounded to BF16 | FP32 | two for each lane (AVX512_BF16) |
///
/// Rounding to BF16 is to nearest, ties to even, and changes a value by at most 2^-8 of it; a product of two such
/// values is exact in FP32. Values below 2^-126 in magnitude count as 0, values above max_bfloat16 become infinite, and
/// NaN stays NaN.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "warprank/core/dtype.hpp"
#include "warprank/core/error.hpp"
#include "warprank/core/view.hpp"
#include "warprank/ops/host/simd.hpp"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace warprank { inline namespace v0 { namespace host_ops {

enum class Precision { fp32, bf16 };

/// How a layer keeps its weights: as its products take them, or in INT8 (ops/int8_weights.hpp).
enum class WeightStorage { as_multiplied, int8 };

/// The BF16 values in a lane of 32 bits: of inputs 2 k and 2 k + 1.
struct Bf16Pair {
  bfloat16 even, odd;
};

/// Pairs from one row of rounded values to the next, for rows of `count` values: whole vectors of AVX-512.
constexpr int64_t pairs_stride(int64_t count) { return (count + 31) / 32 * 16; }

#if HWY_ARCH_X86
/// Asks CPUID, once: not all compilers that build this have a name for the feature.
inline bool processor_has_avx512_bf16() {
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 5 & 1) != 0;
  }();
  return has;
}
#endif

/// Throws invalid_argument, with `name` and the place, for a weight that is not finite once it is rounded to BF16: an
/// infinity would spoil whole scores later.
inline void check_bf16(const std::string& name, Span<const float> weight) {
  for (int64_t i = 0; i < weight.size(); ++i)
    if (!std::isfinite(to_float(to_bfloat16(weight[i]))))
      raise(invalid_argument(name + ", element " + std::to_string(i),
                             "a number whose magnitude is at most 3.3895e+38, the largest of BF16",
                             std::to_string(weight[i])));
}

}}}  // namespace warprank::v0::host_ops

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/products-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"

namespace warprank { inline namespace v0 { namespace host_ops {

HWY_EXPORT(has_bf16_products);

/// Whether this processor has products of BF16 values, and the kernels of its instruction set use them.
inline bool has_bf16_products() { return HWY_DYNAMIC_DISPATCH(has_bf16_products)(); }

}}}  // namespace warprank::v0::host_ops
