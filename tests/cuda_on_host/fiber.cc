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

namespace dlaunch::cuda_on_host {
namespace {

constexpr std::size_t kStackBytes = std::size_t{64} << 10;
constexpr std::size_t kPreserved = 6;  // registers

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

// The stack begins as if enter() had been called and had switched away at once: below its return
// address lie the registers.
Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), stack_(std::make_unique_for_overwrite<std::byte[]>(kStackBytes)) {
  auto end = reinterpret_cast<std::uintptr_t>(stack_.get() + kStackBytes);
  end -= end % 16;
  auto* const top = reinterpret_cast<void**>(end);
  top[-1] = nullptr;  // whom enter() would return to
  top[-2] = reinterpret_cast<void*>(&Fiber::enter);
  inside_ = std::memset(top - 2 - kPreserved, 0, kPreserved * sizeof(void*));
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
