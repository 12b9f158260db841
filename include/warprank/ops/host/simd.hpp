// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Highway, made ready for header-only kernels with run-time dispatch: the instruction sets we compile for, and
/// Highway's own vector operations for each of them.
///
/// A host op is two files. `<op>-inl.h` holds the kernels, in a namespace per instruction set:
///
///     HWY_BEFORE_NAMESPACE();
///     namespace warprank { inline namespace v0 { namespace host_ops::HWY_NAMESPACE {
///     namespace hn = hwy::HWY_NAMESPACE;
///     inline void scale(float factor, Matrix<float> x) { ... }
///     }
///     HWY_AFTER_NAMESPACE();
///
/// It has no include guard and includes nothing: `<op>.hpp`, which is guarded, includes what it needs, defines the
/// types of its arguments, has it compiled for every instruction set, and calls the best one:
///
///     #include "warprank/ops/host/simd.hpp"
///     #define WARPRANK_TARGET_INCLUDE "warprank/ops/host/<op>-inl.h"
///     #include "warprank/ops/host/foreach_target-inl.h"
///     namespace warprank { inline namespace v0 { namespace host_ops {
///     HWY_EXPORT(scale);
///     inline void scale(float factor, Matrix<float> x) { HWY_DYNAMIC_DISPATCH(scale)(factor, x); }
///     }
///
/// Kernels may call those of any op whose .hpp was included before. Everything is inline and named after its
/// instruction set, so units built with different -m flags link and choose the same code. A source file that uses
/// Highway's foreach_target.h for kernels of its own cannot include this as well: it can run only once in a source
/// file.

#include "warprank/core/unroll.hpp"

/// The instruction sets compiled unless the user chose others: AVX-512, AVX2, NEON and the compiler's baseline. The
/// bits are Highway's (stable, and some have no name in older versions): AVX3 8, AVX2 9, SSE2 14, NEON 28 and 29.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (((1LL << 61) - 1) & ~((1LL << 8) | (1LL << 9) | (1LL << 14) | (1LL << 28) | (1LL << 29)))
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hwy/highway.h"
#include <hwy/foreach_target.h>
// After foreach_target.h, which has compiled every instruction set but the baseline.
#include <hwy/highway.h>
#undef HWY_TARGET_INCLUDE

#define WARPRANK_TARGET_INCLUDE "warprank/ops/host/vector-inl.h"
#include "warprank/ops/host/foreach_target-inl.h"
