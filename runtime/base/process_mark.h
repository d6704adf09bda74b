// ProcessMark: which process something belongs to. A child that fork() has made, with a copy of it,
// knows by it that it is another one, at the price of looking at a variable (getpid() is a system
// call).
#pragma once

#include <atomic>

namespace dlaunch {

class ProcessMark {
 public:
  /// This process's.
  ProcessMark();

  /// False in a child of the process that made it. Any thread.
  bool is_here() const { return mark_ == current.load(std::memory_order_relaxed); }

 private:
  static inline std::atomic<unsigned> current{0};
  unsigned mark_;
};

}  // namespace dlaunch
