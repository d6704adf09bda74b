// ExitWatch: how long to wait for processes that have been killed. One that is stuck in the kernel
// would take for ever, and one that has to give back hundreds of gigabytes takes minutes, in which
// it can be seen at work. One thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>

#include "runtime/base/process_stat.h"

namespace dlaunch {

class ExitWatch {
 public:
  using Clock = std::chrono::steady_clock;
  /// However much they have to give back.
  static constexpr std::chrono::minutes kLongest{2};

  /// From now on; so long after the last sign of work.
  ExitWatch(std::chrono::milliseconds patience, Clock::time_point now)
      : patience_(patience), give_up_(now + patience), latest_(now + kLongest) {}

  /// For each process that is still there, again and again.
  void see(pid_t pid, const ProcessStat& stat, Clock::time_point now);

  bool expired(Clock::time_point now) const { return now >= give_up_; }

 private:
  const std::chrono::milliseconds patience_;
  Clock::time_point give_up_;
  const Clock::time_point latest_;
  std::map<std::pair<pid_t, std::uint64_t>, std::uint64_t> worked_;  // of those on their way out
};

}  // namespace dlaunch
