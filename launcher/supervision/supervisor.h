// Supervisor: watches the ranks of one attempt until all have ended, and ends them when one fails,
// when the job's time is up or when the user says so. Belongs to the event loop's thread.
//
//   running --(failure, timeout, signal)--> SIGTERM (or the user's signal) to all
//           --(grace period, second SIGINT of the user)--> SIGKILL to all
//
// Signals go to a rank's whole process group, and to a rank that has left it.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <optional>
#include <vector>

#include "launcher/base/event_loop.h"
#include "launcher/failure/outcome.h"
#include "launcher/output/output_relay.h"
#include "launcher/ranks/spawn.h"

namespace dlaunch {

class Supervisor {
 public:
  struct Options {
    int attempt = 0;
    std::optional<EventLoop::Clock::time_point> job_deadline;
    std::chrono::nanoseconds grace = std::chrono::seconds(5);
  };

  Supervisor(EventLoop& loop, OutputRelay& relay, const Options& options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Takes charge of the process of a rank, before run(). Ranks may come in any order.
  void add(Rank process);

  /// Returns when all ranks have ended, or some would not even after SIGKILL.
  void run();

  /// A signal meant for the job. `seen_by_terminal_group`: the terminal has sent it to its
  /// foreground group itself.
  void handle_signal(int signal, bool seen_by_terminal_group);

  /// The other nodes of the job end their ranks.
  void end_elsewhere() { end_attempt(AttemptOutcome::Cause::kElsewhere, SIGTERM, false); }

  /// A child has ended: if it is not a rank, it was a rank's and came to us as an orphan.
  void reap_children();

  /// Ends the run at once, without a signal to anybody: the guard has gone.
  void abandon() { abandoned_ = true; }

  EventLoop::Clock::time_point start() const { return start_; }
  const AttemptOutcome& outcome() const { return outcome_; }

 private:
  bool reap(pid_t pid);
  void rank_ended(std::size_t index, int wait_status, const rusage& usage);
  void judge_failure(std::size_t index);
  std::chrono::milliseconds judgement_delay(std::size_t index) const;
  void cancel_judgement();
  void end_attempt(AttemptOutcome::Cause cause, int signal, bool seen_by_terminal_group);
  void note_ends_by(int signal);
  void kill_ranks();
  void resize_terminals();
  void send_to(std::size_t index, int signal);
  bool is_in_terminal_group(std::size_t index) const;
  void send_to_ranks(int signal, bool seen_by_terminal_group);
  void call_at(EventLoop::Clock::time_point when, EventLoop::Callback callback);

  EventLoop& loop_;
  OutputRelay& relay_;
  const Options options_;
  const EventLoop::Clock::time_point start_ = EventLoop::Clock::now();
  std::vector<Rank> ranks_;  // ascending, as those in outcome_
  AttemptOutcome outcome_;
  std::size_t running_ = 0;
  bool ending_ = false;
  bool interrupted_ = false;  // there was a SIGINT
  bool abandoned_ = false;
  std::optional<EventLoop::TimerId> judgement_;  // see judge_failure
  std::vector<EventLoop::TimerId> timers_;       // that refer to this object
};

}  // namespace dlaunch
