// Supervisor: watches the ranks of a job until all have ended, and ends the job when one fails,
// when its time is up or when the user says so. Belongs to the event loop's thread.
//
//   running --(failure, timeout, signal)--> SIGTERM (or the user's signal) to all
//           --(grace period, second SIGINT)--> SIGKILL to all
//
// Signals go to a rank's whole process group.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "launcher/event_loop.h"
#include "launcher/options/supervision_options.h"
#include "launcher/outcome.h"
#include "launcher/output_relay.h"
#include "launcher/spawn.h"

namespace dlaunch {

class Supervisor {
 public:
  Supervisor(EventLoop& loop, OutputRelay& relay, const SupervisionOptions& options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Takes charge of the next rank.
  void add(Rank rank);

  /// Returns when all ranks have ended, or some would not even after SIGKILL.
  void run();

  /// A signal meant for the job. `seen_by_terminal_group`: the terminal has sent it to its
  /// foreground group itself.
  void handle_signal(int signal, bool seen_by_terminal_group);

  /// A child has ended: if it is not a rank, it was a rank's and came to us as an orphan.
  void reap_children();

  /// Ends the run at once, without a signal to anybody: the guard has gone.
  void abandon() { abandoned_ = true; }

  const JobOutcome& outcome() const { return outcome_; }

 private:
  void rank_ended(std::size_t index, int wait_status);
  void judge_failure(std::size_t index);
  void end_job(JobOutcome::Cause cause, int signal, bool seen_by_terminal_group);
  void kill_job();
  void send_to_ranks(int signal, bool seen_by_terminal_group);

  EventLoop& loop_;
  OutputRelay& relay_;
  const SupervisionOptions& options_;
  const EventLoop::Clock::time_point start_ = EventLoop::Clock::now();
  std::vector<Rank> ranks_;
  JobOutcome outcome_;
  std::size_t running_ = 0;
  bool ending_ = false;
  bool abandoned_ = false;
  std::optional<EventLoop::TimerId> judgement_;  // see judge_failure
};

}  // namespace dlaunch
