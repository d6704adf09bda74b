// StackCollector: the stacks of some processes, one after the other, without blocking the loop: by
// eu-stack or gdb, whichever is installed. A process that no debugger can look at, but that has
// said how (runtime/base/stack_signal.h), is asked to print its stack itself, to its stderr.
//
// Belongs to the event loop's thread. The debugger is a child of this process and stops what it
// looks at for a moment; its session is its own, so that it is not taken for a process of the job's
// that a rank has left behind. One that takes too long is killed, and so it is when the collector
// is destroyed; what it had stopped goes on.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/event_loop.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/process_stat.h"

namespace dlaunch {

class StackCollector {
 public:
  struct Process {
    int rank = 0;
    pid_t pid = -1;
    int stack_signal = 0;
  };
  using Done = std::function<void(std::vector<std::string> lines)>;

  /// Begins at once; `done` is called from the loop, never from here. `signal_mask`: for debuggers.
  StackCollector(EventLoop& loop, const sigset_t& signal_mask, std::vector<Process> processes,
                 Done done);
  ~StackCollector();
  StackCollector(const StackCollector&) = delete;
  StackCollector& operator=(const StackCollector&) = delete;

 private:
  void look_at_next();
  bool start_debugger(pid_t pid);
  void read_output();
  void finish_one();
  void stop_debugger();
  void kill_debugger();

  EventLoop& loop_;
  const sigset_t signal_mask_;
  const std::vector<Process> processes_;
  const Done done_;
  const std::string debugger_;  // path; empty: none is installed
  std::size_t next_ = 0;
  std::vector<std::string> lines_;
  std::string output_;  // of the debugger that runs
  Descriptor pipe_;
  Descriptor running_;               // its pidfd
  std::optional<ProcessStat> seen_;  // the process that it looks at, just before
  std::optional<EventLoop::TimerId> timer_;
};

}  // namespace dlaunch
