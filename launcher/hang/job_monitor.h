// JobMonitor: shows what a running job is doing - in a hang report on stderr, when no rank makes
// progress any more or the user types Ctrl-\, and to `dlaunch status`. Belongs to the event loop's
// thread.
#pragma once

#include <signal.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/event_loop.h"
#include "launcher/failure/outcome.h"
#include "launcher/hang/activity_board.h"
#include "launcher/hang/inspector.h"
#include "launcher/hang/stall_watch.h"
#include "launcher/output/output_relay.h"
#include "launcher/ranks/rank_environment.h"
#include "launcher/status/status_server.h"
#include "launcher/supervision/supervisor.h"

namespace dlaunch {

class JobMonitor {
 public:
  struct Options {
    std::chrono::nanoseconds stall_after;  // 0: never
    sigset_t signal_mask;                  // for debuggers
    int ranks = 1;                         // of this node
  };

  /// All references outlive it.
  JobMonitor(EventLoop& loop, OutputRelay& relay, const JobOutcome& job, const Options& options);

  /// An attempt of the job begins. All stay until end_attempt().
  void begin_attempt(const JobIdentity& job, const Supervisor& supervisor,
                     const ActivityBoard& board);
  void end_attempt();

  /// Writes a hang report, whose first line says why.
  void report(const std::string& why);

 private:
  std::string summary() const;
  std::vector<std::string> activities() const;
  void serve(StatusRequest request, const StatusServer::Answer& answer);

  EventLoop& loop_;
  OutputRelay& relay_;
  const JobOutcome& job_;
  const JobIdentity* attempt_ = nullptr;  // the one that is running
  const Options options_;
  const EventLoop::Clock::time_point start_ = EventLoop::Clock::now();
  const Supervisor* supervisor_ = nullptr;
  Inspector inspector_;
  std::optional<StallWatch> stall_watch_;
  StatusServer server_;
};

}  // namespace dlaunch
