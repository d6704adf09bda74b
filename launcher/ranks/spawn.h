// Starts one rank.
//
// The rank leads a process group of its own, dies with the thread that started it
// (PR_SET_PDEATHSIG), has the signal mask that dlaunch was started with, and inherits exactly the
// descriptors that dlaunch itself inherited.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// The same for all ranks of a job.
struct SpawnPlan {
  std::string path;  // of the program
  const std::vector<std::string>& command;
  sigset_t signal_mask;        // for the ranks
  std::vector<int> inherited;  // descriptors above 2 that the ranks keep, ascending
  pid_t terminal_group = 0;    // see below
};

/// What differs from rank to rank.
struct RankStart {
  int rank = 0;  // in the job's world
  std::vector<std::string> environment;
  int standard_input = 0;        // the descriptor that it reads; 0: dlaunch's own
  bool captured_output = false;  // its stdout is a pipe, else dlaunch's own
  bool error_terminal = false;   // its stderr is a terminal like dlaunch's, else a pipe
  std::vector<int> threads;      // the hardware threads it is bound to; empty: not bound
};

struct Rank {
  int rank = 0;  // in the job's world
  pid_t pid = -1;
  Descriptor end;            // pidfd: readable once the rank has ended
  Descriptor output;         // reading end of its stdout if that is captured, non-blocking
  Descriptor error_output;   // reading end of its stderr, non-blocking (see rank_terminal.h)
  pid_t terminal_group = 0;  // which it has joined; 0: it leads its own
  std::chrono::steady_clock::time_point spawned;
  std::chrono::steady_clock::time_point executed;  // exec of the program succeeded
};

/// Starts a rank. To read from a terminal a process must be in its foreground group; so if
/// plan.terminal_group is not 0, the rank that has dlaunch's own stdin joins that group instead of
/// leading its own, and ignores SIGQUIT: Ctrl-\ is for dlaunch.
/// Errors are exec_error's (exec_check.h), and kIo: the system is out of something.
Result<Rank> spawn_rank(const SpawnPlan& plan, const RankStart& start);

/// The descriptors above 2 that are open now and not close-on-exec: what the user handed down.
std::vector<int> inherited_descriptors();

}  // namespace dlaunch
