// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Threads that are switched by hand: each is a stack and the registers that a call preserves.

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) || defined(WARPRANK_SIMT_UCONTEXT)
#include <ucontext.h>
#endif

namespace simt {

/// A stack of its own with a guard page below it, or the stack of the OS thread that runs the fibers.
class Fiber {
 public:
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes the next switch to this fiber call `entry`, which never returns. What the fiber did before is forgotten; its
  /// frames are not unwound, and unless it was at its end, forget_frames() comes first. `stagger` moves the top of the
  /// stack by some cache lines: equal tops share cache sets.
  void start(void (*entry)(), unsigned stagger);
  void forget_frames();

  /// Leaves `from`, which runs now, and continues `to`.
  static void switch_to(Fiber& from, Fiber& to);
  /// What a fiber does first.
  static void arrived();

 private:
#if defined(__x86_64__) && !defined(WARPRANK_SIMT_UCONTEXT)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
  char* stack_ = nullptr;
  // For AddressSanitizer, which must know on which stack the program runs.
  void* fake_stack_ = nullptr;
  const void* bottom_ = nullptr;
  size_t size_ = 0;
};

}  // namespace simt
