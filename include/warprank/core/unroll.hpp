// SPDX-License-Identifier: Apache-2.0
#pragma once

/// WARPRANK_UNROLL, before a loop of few iterations over a local array, which lies in registers only if the loop is
/// unrolled. WARPRANK_ROLLED, before a loop whose copies would take registers that its body needs. WARPRANK_UNROLL_BY,
/// before a loop of which a constant number of iterations shall overlap.
#if defined(__CUDACC__)
#define WARPRANK_UNROLL _Pragma("unroll")
#define WARPRANK_ROLLED _Pragma("unroll 1")
#define WARPRANK_PRAGMA(TEXT) _Pragma(#TEXT)
#define WARPRANK_UNROLL_BY(COUNT) WARPRANK_PRAGMA(unroll COUNT)
#elif defined(__clang__)
#define WARPRANK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define WARPRANK_UNROLL _Pragma("GCC unroll 16")
#endif
#if !defined(__CUDACC__)
#define WARPRANK_ROLLED
#define WARPRANK_UNROLL_BY(COUNT)
#endif
