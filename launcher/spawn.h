// Starts one rank.
//
// The rank leads a process group of its own, dies with the thread that started it
// (PR_SET_PDEATHSIG), has the signal mask that dlaunch was started with, and inherits exactly the
// descriptors that dlaunch itself inherited.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// The same for all ranks of a job. The vectors of strings outlive the call only.
struct SpawnPlan {
  std::string path;  // of the program
  const std::vector<std::string>& command;
  sigset_t signal_mask;          // for the ranks
  std::vector<int> inherited;    // descriptors above 2 that the ranks keep, ascending
  pid_t terminal_group = 0;      // see below
  std::vector<cpu_set_t> cores;  // by rank; empty: not bound
};

struct Rank {
  pid_t pid = -1;
  Descriptor end;           // pidfd: readable once the rank has ended
  Descriptor error_output;  // reading end of its stderr, non-blocking
  bool in_terminal_group = false;
  std::chrono::steady_clock::time_point spawned;
  std::chrono::steady_clock::time_point executed;  // exec of the program succeeded
};

/// Starts rank `rank`, which reads stdin if it is rank 0 and /dev/null otherwise. To read from a
/// terminal a process must be in its foreground group; so if plan.terminal_group is not 0, rank 0
/// joins that group instead of leading its own.
///   kNotFound     the program, or the interpreter its first line names, does not exist
///   kInvalidArgument  it cannot be executed
///   kIo           the system is out of something
Result<Rank> spawn_rank(const SpawnPlan& plan, int rank,
                        const std::vector<std::string>& environment);

/// The descriptors above 2 that are open now and not close-on-exec: what the user handed down.
std::vector<int> inherited_descriptors();

}  // namespace dlaunch
