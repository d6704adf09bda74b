// JobMonitor: shows what a running job is doing - in a hang report on stderr, when no rank makes
// progress any more or the user types Ctrl-\, and to `dlaunch status`. Belongs to the event loop's
// thread.
#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/event_loop.h"
#include "launcher/failure/outcome.h"
#include "launcher/hang/activity_board.h"
#include "launcher/hang/elsewhere.h"
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

  /// How the ranks of other nodes are asked; nullptr: there are none.
  void look_elsewhere(Elsewhere elsewhere) { elsewhere_ = std::move(elsewhere); }

  /// Writes a hang report, whose first line says why; nothing while one is being written, for which
  /// debuggers may take minutes.
  void report(const std::string& why) {
    if (reports_ == 0) report(why, false);
  }

  /// For another node's report: what the ranks here are doing, and the stacks of those of them that
  /// are named.
  std::vector<ObservedRank> observe() const { return inspector_.observe(); }
  void collect_stacks(const std::vector<int>& ranks, Inspector::Sink sink);
  /// Another node tells the user that nothing moves.
  void leave_stall_to_others();
  /// The user has stopped the ranks here (Ctrl-Z), or lets them go on.
  void set_stopped(bool stopped);

 private:
  /// The whole job at a moment.
  struct View {
    int world = 1;
    std::vector<ObservedRank> ranks;  // that are known, of all nodes
    std::vector<std::string> lines;   // what they are doing, and of which ranks nothing is known
  };
  using ViewTaker = std::function<void(const View& view)>;

  void report(const std::string& why, bool stalled);
  std::string summary() const;
  void look(bool stalled, const ViewTaker& take);
  View view_with(const std::vector<SeenElsewhere>& elsewhere) const;
  void stacks(const View& view, const Inspector::Sink& sink);
  std::vector<std::string> without_stacks(const std::vector<int>& ranks,
                                          const std::vector<SeenElsewhere>& seen) const;
  void serve(StatusRequest request, const StatusServer::Answer& answer);

  EventLoop& loop_;
  OutputRelay& relay_;
  const JobOutcome& job_;
  const JobIdentity* attempt_ = nullptr;  // the one that is running
  const Options options_;
  const EventLoop::Clock::time_point start_ = EventLoop::Clock::now();
  const Supervisor* supervisor_ = nullptr;
  Inspector inspector_;
  Elsewhere elsewhere_;
  std::optional<StallWatch> stall_watch_;
  int reports_ = 0;  // that are being written
  StatusServer server_;
};

}  // namespace dlaunch
