// SPDX-License-Identifier: Apache-2.0
#include "simt/fiber.hpp"

#include <sys/mman.h>

#include <new>

#include "simt/asan.hpp"

namespace simt {
namespace {

constexpr size_t stack_bytes = size_t{128} << 10, guard_bytes = 4096;
// Holds the frames of a fiber that has ended: they never return, and AddressSanitizer must be told to forget them.
constexpr size_t top_bytes = 8192;

Fiber* leaving = nullptr;

#if defined(__x86_64__) && !defined(WARPRANK_SIMT_UCONTEXT)
// Saves the registers that a call preserves on the old stack, changes stacks, and restores those of the new one.
extern "C" void warprank_simt_switch(void** old_stack_pointer, void* new_stack_pointer);
asm(R"(
.text
.globl warprank_simt_switch
.type warprank_simt_switch, @function
warprank_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size warprank_simt_switch, . - warprank_simt_switch
)");
constexpr int saved_registers = 6;
#endif

}  // namespace

Fiber::~Fiber() {
  if (stack_ != nullptr) munmap(stack_ - guard_bytes, stack_bytes + guard_bytes);
}

void Fiber::start(void (*entry)(), unsigned stagger) {
  if (stack_ == nullptr) {
    void* memory = mmap(nullptr, stack_bytes + guard_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, guard_bytes, PROT_NONE);
    stack_ = static_cast<char*>(memory) + guard_bytes;
    bottom_ = stack_;
    size_ = stack_bytes;
  }
  allow(stack_ + stack_bytes - top_bytes, top_bytes);
  fake_stack_ = nullptr;
  const size_t usable = stack_bytes - stagger % 32 * 64;
#if defined(__x86_64__) && !defined(WARPRANK_SIMT_UCONTEXT)
  auto* top = reinterpret_cast<uintptr_t*>(reinterpret_cast<uintptr_t>(stack_ + usable) & ~uintptr_t{15});
  *--top = 0;  // where `entry` would return to; also leaves the stack as a call does
  *--top = reinterpret_cast<uintptr_t>(entry);
  for (int i = 0; i < saved_registers; ++i) *--top = 0;
  stack_pointer_ = top;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = usable;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
#endif
}

void Fiber::forget_frames() {
  if (stack_ != nullptr) allow(stack_, stack_bytes);
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  leaving = &from;
#if defined(WARPRANK_SIMT_ASAN)
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.bottom_, to.size_);
#endif
#if defined(__x86_64__) && !defined(WARPRANK_SIMT_UCONTEXT)
  warprank_simt_switch(&from.stack_pointer_, to.stack_pointer_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
#if defined(WARPRANK_SIMT_ASAN)
  __sanitizer_finish_switch_fiber(from.fake_stack_, &leaving->bottom_, &leaving->size_);
#endif
}

void Fiber::arrived() {
#if defined(WARPRANK_SIMT_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, &leaving->bottom_, &leaving->size_);
#endif
}

}  // namespace simt
