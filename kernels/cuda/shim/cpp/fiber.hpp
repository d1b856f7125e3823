// Threads of one operating system thread, which run until they give way: a stack each, and a switch between stacks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace shim {

// The stack that a fiber starts on.
constexpr size_t STACK_BYTES = 64 << 10;

#ifdef __x86_64__

// Saves the callee's registers on the stack, whose pointer goes to `*from`, and takes those of the stack `to`. The C library's
// swapcontext does the same with a system call each time.
extern "C" void lynx_shim_switch(void **from, void *to);

class Fiber {
  public:
    // Prepares `entry`, which must never return, to run on the fiber's own stack.
    void start(void (*entry)()) {
        if (!stack) stack = std::make_unique<char[]>(STACK_BYTES);
        auto top = reinterpret_cast<uintptr_t>(stack.get() + STACK_BYTES) & ~uintptr_t{15};
        void **frame = reinterpret_cast<void **>(top);
        *--frame = nullptr;
        *--frame = reinterpret_cast<void *>(entry);
        for (int saved = 0; saved < 6; saved++) *--frame = nullptr;
        pointer = frame;
    }
    void switch_to(Fiber &other) { lynx_shim_switch(&pointer, other.pointer); }

  private:
    std::unique_ptr<char[]> stack;
    void *pointer = nullptr;
};

#else

class Fiber {
  public:
    void start(void (*entry)()) {
        if (!stack) stack = std::make_unique<char[]>(STACK_BYTES);
        getcontext(&context);
        context.uc_stack.ss_sp = stack.get();
        context.uc_stack.ss_size = STACK_BYTES;
        context.uc_link = nullptr;
        makecontext(&context, entry, 0);
    }
    void switch_to(Fiber &other) { swapcontext(&context, &other.context); }

  private:
    std::unique_ptr<char[]> stack;
    ucontext_t context;
};

#endif

}  // namespace shim
