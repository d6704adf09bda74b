// The guard: the process that the user has started. It forks the launcher, passes signals on to it,
// and waits. Each of the two ends everything when the other is gone, so that no process survives
// even if one of them is killed with SIGKILL.
#pragma once

#include <functional>

#include "launcher/supervision/signals.h"

namespace dlaunch {

/// Runs `launcher` in a child process and returns what dlaunch exits with. The child is given a
/// descriptor that reaches its end of file when the guard has gone, and is a process group of its
/// own, which the terminal's signals do not reach. Throws std::system_error.
int guard(const SignalSetup& signals, const std::function<int(int guard_pipe)>& launcher);

}  // namespace dlaunch
