#include "tests/cuda_on_host/fiber.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

// Leaves what a function must preserve on the stack, and that stack for another one. (swapcontext()
// asks the kernel for its signal mask each time, which takes ten times as long.)
extern "C" void dlaunch_switch_stacks(void** from, void* to);
#if defined(__x86_64__)
asm(R"(
.text
.type dlaunch_switch_stacks, @function
dlaunch_switch_stacks:
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
.size dlaunch_switch_stacks, .-dlaunch_switch_stacks
)");
#elif defined(__aarch64__)
asm(R"(
.text
.type dlaunch_switch_stacks, @function
dlaunch_switch_stacks:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size dlaunch_switch_stacks, .-dlaunch_switch_stacks
)");
#else
#error "dlaunch_switch_stacks is written for x86-64 and AArch64"
#endif

namespace dlaunch::cuda_on_host {
namespace {

constexpr std::size_t kStackBytes = std::size_t{64} << 10;
// What is on a stack that has been left, in words, and which of them is the return address. On
// x86-64 one more, so that the stack is aligned as it is behind a call.
#if defined(__x86_64__)
constexpr std::size_t kLeft = 8;
constexpr std::size_t kReturnAddress = 6;
#else
constexpr std::size_t kLeft = 20;
constexpr std::size_t kReturnAddress = 11;
#endif

Fiber* entering = nullptr;

#ifdef __SANITIZE_ADDRESS__
void leave_for(void** own, const void* bottom, std::size_t size) {
  __sanitizer_start_switch_fiber(own, bottom, size);
}
void arrived(void* own, const void** bottom, std::size_t* size) {
  __sanitizer_finish_switch_fiber(own, bottom, size);
}
#else
void leave_for(void** /*own*/, const void* /*bottom*/, std::size_t /*size*/) {}
void arrived(void* /*own*/, const void** /*bottom*/, std::size_t* /*size*/) {}
#endif

}  // namespace

// The stack begins as if it had been left at the beginning of enter(), which has nobody to return
// to.
Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), stack_(std::make_unique_for_overwrite<std::byte[]>(kStackBytes)) {
  auto end = reinterpret_cast<std::uintptr_t>(stack_.get() + kStackBytes);
  end -= end % 16;
  auto* const left = reinterpret_cast<void**>(end) - kLeft;
  std::memset(left, 0, kLeft * sizeof(void*));
  left[kReturnAddress] = reinterpret_cast<void*>(&Fiber::enter);
  inside_ = left;
}

void Fiber::resume() {
  entering = this;
  void* own = nullptr;
  leave_for(&own, stack_.get(), kStackBytes);
  dlaunch_switch_stacks(&outside_, inside_);
  arrived(own, nullptr, nullptr);
}

void Fiber::pause() {
  void* own = nullptr;
  leave_for(&own, outer_bottom_, outer_size_);
  dlaunch_switch_stacks(&inside_, outside_);
  arrived(own, &outer_bottom_, &outer_size_);
}

void Fiber::enter() {
  Fiber* const self = entering;
  arrived(nullptr, &self->outer_bottom_, &self->outer_size_);
  self->body_();
  std::abort();  // there is nowhere to return to
}

}  // namespace dlaunch::cuda_on_host
