// CallerThreads: whether a communicator is used by one thread only.
//
// If it is, a rank whose thread waits in one call cannot be about to make another, and ranks that
// wait for each other in different kinds of calls are known to be stuck. Any thread; costs a
// compare.
#pragma once

#include <atomic>

namespace dlaunch {

class CallerThreads {
 public:
  /// Stands for the calling thread, as long as it lives.
  static const void* current() {
    thread_local const char token = 0;
    return &token;
  }

  /// The calling thread uses the communicator.
  void note() {
    const void* const thread = current();
    if (first_.load(std::memory_order_relaxed) == thread) return;
    const void* nobody = nullptr;
    if (!first_.compare_exchange_strong(nobody, thread) && nobody != thread) several_ = true;
  }

  /// True if `thread` is the only one that ever used it.
  bool only(const void* thread) const { return !several_ && first_ == thread; }

 private:
  std::atomic<const void*> first_{nullptr};
  std::atomic<bool> several_{false};
};

}  // namespace dlaunch
