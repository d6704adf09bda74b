// AttemptRunner: the attempts of a job on this node, one after the other: each starts the ranks,
// watches them to their end, leaves nothing of them behind and keeps what became of them. Signals
// to dlaunch, and the guard's end, reach the attempt that is running through it.
//
// Belongs to the event loop's thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "launcher/base/event_loop.h"
#include "launcher/failure/kernel_account.h"
#include "launcher/failure/outcome.h"
#include "launcher/hang/activity_board.h"
#include "launcher/hang/job_monitor.h"
#include "launcher/job/launch_context.h"
#include "launcher/output/output_relay.h"
#include "launcher/ranks/rank_environment.h"
#include "launcher/ranks/spawn_crew.h"
#include "launcher/supervision/descendants.h"
#include "launcher/supervision/signal_source.h"
#include "launcher/supervision/supervisor.h"

namespace dlaunch {

class AttemptRunner {
 public:
  /// `context` outlives it.
  explicit AttemptRunner(const LaunchContext& context);
  ~AttemptRunner() { loop_.remove(context_.guard_pipe); }
  AttemptRunner(const AttemptRunner&) = delete;
  AttemptRunner& operator=(const AttemptRunner&) = delete;

  EventLoop& loop() { return loop_; }
  OutputRelay& relay() { return relay_; }
  JobOutcome& outcome() { return outcome_; }
  JobMonitor& monitor() { return monitor_; }
  const std::string& error_folder() const { return context_.error_folder; }

  /// For an attempt after so many restarts; store, secret and MASTER_PORT are to be filled in.
  JobIdentity identity(int restarts) const;

  /// Runs an attempt to its end, which is then the last in outcome(). `when_started` is called once
  /// all ranks are. An error: not all ranks could be started or watched; those that were started
  /// have been ended.
  Status run(JobIdentity job, const std::function<void()>& when_started = nullptr);
  /// The other nodes of the job end their ranks: so does the attempt that is running.
  void end_elsewhere();
  /// Called when the guard has gone, before the ranks are killed.
  void when_guard_goes(std::function<void()> call) { when_guard_goes_ = std::move(call); }
  /// Tells the user how an attempt ended.
  void tell_about(const AttemptOutcome& attempt);

  /// For the end: waits until all output is written, as a program does that writes to a pipe. But a
  /// job that was told to end waits only for a reader that still reads, and one whose user loses
  /// patience now (a signal) does not wait. False if some of the output was lost.
  bool finish_output();
  /// The same for a pipe of which somebody else, who reads slowly, has to make room. False: no
  /// more.
  bool wait_for_reader(int descriptor);

  /// When --timeout ends the job.
  const std::optional<EventLoop::Clock::time_point>& deadline() const { return deadline_; }
  /// No further attempt, whatever happens: a signal to dlaunch, or
  bool stopped() const { return interrupted_by_ != 0 || guard_gone_; }
  int interrupted_by() const { return interrupted_by_; }
  int interruptions() const { return interruptions_; }
  bool guard_gone() const { return guard_gone_; }
  /// False: some process of the job could not be killed.
  bool all_ended() const { return all_ended_; }

 private:
  Status run_ranks(const JobIdentity& job, Supervisor& supervisor, const ActivityBoard& board,
                   const std::function<void()>& when_started);
  Status start_ranks(const JobIdentity& job, SpawnCrew& crew, Supervisor& supervisor);
  Status keep_logs(const JobIdentity& job, const std::vector<RankStart>& starts);
  void close_attempt(const Supervisor& supervisor, const ActivityBoard& board);
  std::optional<std::chrono::milliseconds> patience_with_readers() const;
  std::function<bool()> loses_patience() const;
  void on_signal(int signal, bool seen_by_terminal_group);
  bool is_repetition(int signal);
  void on_guard_gone();

  const LaunchContext& context_;
  const JobOptions& options_;
  std::optional<EventLoop::Clock::time_point> deadline_;
  KernelAccount kernel_;
  Descendants descendants_;
  EventLoop loop_;
  OutputRelay relay_;
  JobOutcome outcome_;
  JobMonitor monitor_;
  Supervisor* supervisor_ = nullptr;  // of the attempt that is running
  int interrupted_by_ = 0;            // the signal that ended the job
  int interruptions_ = 0;             // how many such signals there were
  std::map<int, EventLoop::Clock::time_point> last_signals_;
  bool guard_gone_ = false;
  std::function<void()> when_guard_goes_;
  bool all_ended_ = true;
  SignalSource signals_;
};

}  // namespace dlaunch
