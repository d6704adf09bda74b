// Fiber: a stack on which a function runs that can stop in its middle and be gone on with. For
// x86-64 and AArch64.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace dlaunch::cuda_on_host {

/// Used by one thread, and not from another fiber. One that is destroyed in the middle of its
/// function destroys nothing that lies on its stack.
class Fiber {
 public:
  /// `body` never returns.
  explicit Fiber(std::function<void()> body);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Goes on with the body until it pauses.
  void resume();
  /// In the body: back to resume().
  void pause();

 private:
  static void enter();

  std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_;
  void* inside_;  // stack pointers of who does not run
  void* outside_ = nullptr;
  // What AddressSanitizer wants to know of the stack that is gone back to.
  const void* outer_bottom_ = nullptr;
  std::size_t outer_size_ = 0;
};

}  // namespace dlaunch::cuda_on_host
