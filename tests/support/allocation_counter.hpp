// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Counts calls of operator new in the whole program, and lets one of them fail. Include it in one source file of an
/// executable.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace warprank::test_support {

inline std::atomic<int64_t> num_allocations{0};

/// While it lives, there is no memory for the allocation after the next `before`, of any thread; for later ones there
/// is again.
class FailingAllocation {
 public:
  explicit FailingAllocation(int64_t before) { left_ = before; }
  ~FailingAllocation() { left_ = -1; }
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  static bool has_failed() { return left_ < 0; }
  static bool is_next() { return left_ >= 0 && left_-- == 0; }

 private:
  static inline std::atomic<int64_t> left_{-1};
};

inline void* allocate(size_t bytes, size_t alignment = 0) {
  ++num_allocations;
  if (FailingAllocation::is_next()) return nullptr;
  return alignment == 0 ? std::malloc(bytes)
                        : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

}  // namespace warprank::test_support

// Inlined, they would look to the compiler as if memory from `new` went to `free`.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (void* memory = warprank::test_support::allocate(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  if (void* memory = warprank::test_support::allocate(bytes, static_cast<size_t>(alignment))) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {  // std::stable_sort
  return warprank::test_support::allocate(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
