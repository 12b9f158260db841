// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Included before everything else in the race build: g++ puts no hooks around copies of memory, so they become calls
/// of functions of the executor, which tell the race checks (tsan.cpp).

#include <cstddef>

extern "C" {
void* memcpy(void* to, const void* from, std::size_t bytes) noexcept __asm__("simt_memcpy");
void* memmove(void* to, const void* from, std::size_t bytes) noexcept __asm__("simt_memmove");
void* memset(void* to, int value, std::size_t bytes) noexcept __asm__("simt_memset");
}
