#include "launcher/supervision/exit_watch.h"

#include <algorithm>

namespace dlaunch {

void ExitWatch::see(pid_t pid, const ProcessStat& stat, Clock::time_point now) {
  if (!stat.exiting) return;
  const auto [known, is_new] = worked_.try_emplace({pid, stat.started}, stat.processor_ticks);
  // One that is seen for the first time may belong to a chain that forks and exits for ever.
  if (is_new || stat.processor_ticks <= known->second) return;
  known->second = stat.processor_ticks;
  give_up_ = std::min(now + patience_, latest_);
}

}  // namespace dlaunch
