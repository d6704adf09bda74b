// Runs one job from its start to its end: store, ranks, supervision, report.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/command_line.h"
#include "launcher/node_settings.h"
#include "launcher/signals.h"

namespace dlaunch {

struct LaunchContext {
  const JobOptions& options;
  const NodeSettings& nodes;
  std::string program;         // path
  SignalSetup signals;         // blocked already
  std::vector<int> inherited;  // descriptors that the ranks keep
  int guard_pipe;              // its end of file says that the guard has gone
  pid_t terminal_group;        // dlaunch's group if that is the terminal's foreground, else 0
};

/// Returns what dlaunch exits with. No process of the job is left then. Throws std::system_error if
/// the system is out of something.
int launch_job(const LaunchContext& context);

}  // namespace dlaunch
