// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How what is long and no template reaches a program: building and planning models, weights, JSON, the host engine.
/// Header-only it is inline in each unit that includes it. The target warprank::host has it compiled and defines
/// WARPRANK_HOST_COMPILED, with which headers only declare it; the units of that target include the definitions, each
/// some (src/host/).

#if defined(WARPRANK_HOST_COMPILED)
#define WARPRANK_HOST_INLINE
#else
#define WARPRANK_HOST_INLINE inline
#endif
