// Signals that ask for the end of training: SIGTERM, as batch systems, dlaunch and kill(1) send it,
// and SIGUSR1, which Slurm can send some time before (--signal=USR1@60).
#pragma once

#include <memory>
#include <string>

#include "runtime/base/activity.h"

namespace dlaunch {

/// From now on these signals only set what stop_signal() returns, unless they are ignored. But a
/// SIGTERM ends the process as ever if it is the second one, and if `activity` (null: not known)
/// says that the job has failed: then there is nothing left to end in good order. What comes again
/// within half a second is the same signal: a batch system signals ranks besides dlaunch, which
/// passes it on to them. Once in a process.
void catch_stop_signals(std::shared_ptr<const Activity> activity);

/// The signal's number; 0: there was none.
int stop_signal();

/// "SIGTERM"
std::string name_of_stop_signal(int signal);

}  // namespace dlaunch
