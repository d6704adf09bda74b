// The signals that dlaunch takes and passes on, and how it was started with respect to them.
#pragma once

#include <signal.h>

#include <string>

namespace dlaunch {

/// Blocks the signals that dlaunch waits for instead of being interrupted by, and those that would
/// end or stop it when it writes. Afterwards:
struct SignalSetup {
  sigset_t handled;  // to wait for: SIGCHLD, and the job's unless the user had them ignored (nohup)
  sigset_t original;  // the mask that dlaunch was started with, which the ranks get
};
SignalSetup block_signals();

/// "SIGSEGV".
std::string signal_name(int signal);

}  // namespace dlaunch
