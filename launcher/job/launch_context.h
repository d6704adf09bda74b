// What a job is started with: what the user asked for, and how this process stands in the world.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/nodes/node_settings.h"
#include "launcher/options/command_line.h"
#include "launcher/supervision/signals.h"

namespace dlaunch {

struct LaunchContext {
  const JobOptions& options;
  const NodeSettings& nodes;
  std::string program;         // path
  SignalSetup signals;         // blocked already
  std::vector<int> inherited;  // descriptors that the ranks keep
  int guard_pipe;              // its end of file says that the guard has gone
  std::string error_folder;    // for what ranks record of errors; empty: there is none
  pid_t terminal_group;        // dlaunch's group if that is the terminal's foreground, else 0
};

}  // namespace dlaunch
