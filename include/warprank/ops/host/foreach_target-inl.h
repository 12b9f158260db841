// SPDX-License-Identifier: Apache-2.0

// Includes WARPRANK_TARGET_INCLUDE once for every instruction set that is compiled, the baseline last. No include
// guard: every op includes it once. Highway's own foreach_target.h can run only once in a source file, and a user who
// takes two ops would need it twice.

#if (HWY_TARGETS & HWY_EMU128) && HWY_STATIC_TARGET != HWY_EMU128
#undef HWY_TARGET
#define HWY_TARGET HWY_EMU128
#include "hwy/ops/set_macros-inl.h"
#include WARPRANK_TARGET_INCLUDE
#endif

#if (HWY_TARGETS & HWY_SCALAR) && HWY_STATIC_TARGET != HWY_SCALAR
#undef HWY_TARGET
#define HWY_TARGET HWY_SCALAR
#include "hwy/ops/set_macros-inl.h"
#include WARPRANK_TARGET_INCLUDE
#endif

#if (HWY_TARGETS & HWY_NEON) && HWY_STATIC_TARGET != HWY_NEON
#undef HWY_TARGET
#define HWY_TARGET HWY_NEON
#include "hwy/ops/set_macros-inl.h"
#include WARPRANK_TARGET_INCLUDE
#endif

#if (HWY_TARGETS & HWY_SSSE3) && HWY_STATIC_TARGET != HWY_SSSE3
#undef HWY_TARGET
#define HWY_TARGET HWY_SSSE3
#include "hwy/ops/set_macros-inl.h"
#include WARPRANK_TARGET_INCLUDE
#endif

#if (HWY_TARGETS & HWY_SSE4) && HWY_STATIC_TARGET != HWY_SSE4
#undef HWY_TARGET
#define HWY_TARGET HWY_SSE4
#include "hwy/ops/set_macros-inl.h"
#include WARPRANK_TARGET_INCLUDE
#endif

#if (HWY_TARGETS & HWY_AVX2) && HWY_STATIC_TARGET != HWY_AVX2
#undef HWY_TARGET
#define HWY_TARGET HWY_AVX2
#include "hwy/ops/set_macros-inl.h"
#include WARPRANK_TARGET_INCLUDE
#endif

#if (HWY_TARGETS & HWY_AVX3) && HWY_STATIC_TARGET != HWY_AVX3
#undef HWY_TARGET
#define HWY_TARGET HWY_AVX3
#include "hwy/ops/set_macros-inl.h"
#include WARPRANK_TARGET_INCLUDE
#endif

#if (HWY_TARGETS & HWY_AVX3_DL) && HWY_STATIC_TARGET != HWY_AVX3_DL
#undef HWY_TARGET
#define HWY_TARGET HWY_AVX3_DL
#include "hwy/ops/set_macros-inl.h"
#include WARPRANK_TARGET_INCLUDE
#endif

#undef HWY_TARGET
#define HWY_TARGET HWY_STATIC_TARGET
#include "hwy/ops/set_macros-inl.h"
#include WARPRANK_TARGET_INCLUDE

#undef WARPRANK_TARGET_INCLUDE
