// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How long code without templates reaches a program: building and planning models, weights, JSON, the host engine. In
/// header-only use it is inline in each unit that includes it. The target warprank::host has it compiled and defines
/// WARPRANK_HOST_COMPILED, so that headers only declare it; each unit of that target includes some of the definitions
/// (src/host/).

#if defined(WARPRANK_HOST_COMPILED)
#define WARPRANK_HOST_INLINE
#else
#define WARPRANK_HOST_INLINE inline
#endif
