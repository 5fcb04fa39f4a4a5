/*
 * Fibers of one processor, which switch explicitly. Emulated threads and lanes run on them.
 */
#ifndef AUTOMAP_EMULATION_FIBERS_H
#define AUTOMAP_EMULATION_FIBERS_H

#include <stddef.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulation {

#if defined(__x86_64__)

typedef void* Fiber;
/* Saves callee-saved registers and continues on another stack. Much faster than swapcontext, which calls the system. */
__attribute__((naked, noinline)) static void switch_stacks(void** /* left */, void* /* entered */) {
  __asm__ volatile(
      "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
      "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
      "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret");
}
static void hand_over(Fiber& left, Fiber& entered) { switch_stacks(&left, entered); }
static void prepare_fiber(Fiber& fiber, char* stack, size_t bytes, void (*first)()) {
  void** top = (void**)(stack + bytes) - 7; /* as after a call: 8 beyond a multiple of 16 */
  top[0] = nullptr; /* where the first function would return to */
  *--top = (void*)first;
  for (int kept = 0; kept < 6; kept++) *--top = nullptr;
  fiber = top;
}

#else

typedef ucontext_t Fiber;
static void hand_over(Fiber& left, Fiber& entered) { swapcontext(&left, &entered); }
static void prepare_fiber(Fiber& fiber, char* stack, size_t bytes, void (*first)()) {
  getcontext(&fiber);
  fiber.uc_stack.ss_sp = stack;
  fiber.uc_stack.ss_size = bytes;
  fiber.uc_link = nullptr;
  makecontext(&fiber, first, 0);
}

#endif

}  // namespace emulation

#endif
