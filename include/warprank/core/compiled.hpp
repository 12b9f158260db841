// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How what is long and no template reaches a program: building and planning models, weights, JSON, the host engine.
/// Header-only it is inline in each unit that includes it. The target warprank::host has it compiled and defines
/// WARPRANK_HOST_COMPILED, with which headers only declare it; WARPRANK_HOST_SOURCE is for the one unit that target
/// compiles.

#if defined(WARPRANK_HOST_COMPILED) || defined(WARPRANK_HOST_SOURCE)
#define WARPRANK_HOST_INLINE
#else
#define WARPRANK_HOST_INLINE inline
#endif
