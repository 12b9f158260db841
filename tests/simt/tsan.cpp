// SPDX-License-Identifier: Apache-2.0
//
// What -fsanitize=thread makes the compiler call for every load and store. Programs that are compiled so and linked
// without that option get these functions in place of ThreadSanitizer's: they tell the race checks of every access that
// a kernel makes, and do nothing outside of kernels.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "simt/delayed_stores.hpp"
#include "simt/machine.hpp"

namespace simt::race { namespace {

void plain_access(const void* address, size_t bytes, bool write, const void* instruction) {
  Machine& machine = Machine::instance();
  Thread* thread = machine.running();
  if (thread == nullptr) return;
  const bool shared = thread->block->shared.reserved(address);
  if (!shared && !DeviceMemory::instance().reserved(address)) return;
  const auto count = static_cast<int64_t>(bytes);
  if (!thread->delayed_stores.empty()) flush_overlapping(*thread, address, count);
  access(*thread, address, count, write ? Kind::write : Kind::read, Scope::device, {{}, instruction});
  if (!machine.config().count_sectors) return;
  using Sectors = SectorCounter::Kind;
  const Sectors kind = shared ? (write ? Sectors::shared_store : Sectors::shared_load)
                              : (write ? Sectors::global_store : Sectors::global_load);
  thread->block->sectors.add(kind, instruction, 0, thread->warp(), thread->lane(), address, static_cast<int>(bytes));
}

}}  // namespace simt::race

using simt::race::plain_access;

#define WARPRANK_SIMT_PLAIN(bytes)                                                                           \
  void __tsan_read##bytes(void* p) { plain_access(p, bytes, false, __builtin_return_address(0)); }           \
  void __tsan_write##bytes(void* p) { plain_access(p, bytes, true, __builtin_return_address(0)); }           \
  void __tsan_unaligned_read##bytes(void* p) { plain_access(p, bytes, false, __builtin_return_address(0)); } \
  void __tsan_unaligned_write##bytes(void* p) { plain_access(p, bytes, true, __builtin_return_address(0)); } \
  void __tsan_read_write##bytes(void* p) { plain_access(p, bytes, true, __builtin_return_address(0)); }      \
  void __tsan_unaligned_read_write##bytes(void* p) { plain_access(p, bytes, true, __builtin_return_address(0)); }

// C++ atomics belong to the host's code: they are what they would be without instrumentation.
#define WARPRANK_SIMT_ATOMIC(bits, T)                                                                               \
  T __tsan_atomic##bits##_load(const volatile T* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }           \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }           \
  T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_add(volatile T* p, T v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_sub(volatile T* p, T v, int) { return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_and(volatile T* p, T v, int) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); } \
  T __tsan_atomic##bits##_fetch_or(volatile T* p, T v, int) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }   \
  T __tsan_atomic##bits##_fetch_xor(volatile T* p, T v, int) { return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST); } \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* c, T v, int, int) {                           \
    return __atomic_compare_exchange_n(p, c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                         \
  }                                                                                                                 \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* c, T v, int, int) {                             \
    return __atomic_compare_exchange_n(p, c, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                          \
  }                                                                                                                 \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T c, T v, int, int) {                                 \
    __atomic_compare_exchange_n(p, &c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                               \
    return c;                                                                                                       \
  }

extern "C" {
void __tsan_init() { simt::race::hooks_linked = true; }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

WARPRANK_SIMT_PLAIN(1)
WARPRANK_SIMT_PLAIN(2)
WARPRANK_SIMT_PLAIN(4)
WARPRANK_SIMT_PLAIN(8)
WARPRANK_SIMT_PLAIN(16)
void __tsan_read_range(void* p, size_t bytes) { plain_access(p, bytes, false, __builtin_return_address(0)); }
void __tsan_write_range(void* p, size_t bytes) { plain_access(p, bytes, true, __builtin_return_address(0)); }

// Calls of memcpy and the like: g++ does not report them, so they are compiled as calls of simt_memcpy.
#define WARPRANK_SIMT_COPY(name)                                   \
  void* name(void* to, const void* from, size_t bytes) {           \
    plain_access(from, bytes, false, __builtin_return_address(0)); \
    plain_access(to, bytes, true, __builtin_return_address(0));    \
    return std::memmove(to, from, bytes);                          \
  }
#define WARPRANK_SIMT_FILL(name)                                \
  void* name(void* to, int value, size_t bytes) {               \
    plain_access(to, bytes, true, __builtin_return_address(0)); \
    return std::memset(to, value, bytes);                       \
  }
WARPRANK_SIMT_COPY(simt_memcpy)
WARPRANK_SIMT_COPY(simt_memmove)
WARPRANK_SIMT_FILL(simt_memset)
WARPRANK_SIMT_COPY(__tsan_memcpy)
WARPRANK_SIMT_COPY(__tsan_memmove)
WARPRANK_SIMT_FILL(__tsan_memset)

WARPRANK_SIMT_ATOMIC(8, uint8_t)
WARPRANK_SIMT_ATOMIC(16, uint16_t)
WARPRANK_SIMT_ATOMIC(32, uint32_t)
WARPRANK_SIMT_ATOMIC(64, uint64_t)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}
}
