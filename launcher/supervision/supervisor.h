// Supervisor: watches the ranks of one attempt until all have ended, and ends them when one fails,
// when the job's time is up or when the user says so. Belongs to the event loop's thread.
//
//   running --(failure, timeout, signal)--> SIGTERM (or the user's signal) to all
//           --(grace period, second SIGINT of the user)--> SIGKILL to all
//
// Signals go to a rank's whole process group, and to a rank that has left it. What a rank leaves
// behind as it is ended (a shell that dies of the signal, and not the program that it has started)
// has the grace period too, and those signals. Not what has left for a session of its own, as
// daemons do: that is not waited for.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "launcher/base/event_loop.h"
#include "launcher/failure/outcome.h"
#include "launcher/output/output_relay.h"
#include "launcher/ranks/spawn.h"
#include "launcher/supervision/descendants.h"
#include "launcher/supervision/exit_watch.h"

namespace dlaunch {

class Supervisor {
 public:
  struct Options {
    int attempt = 0;
    std::optional<EventLoop::Clock::time_point> job_deadline;
    std::chrono::nanoseconds grace = std::chrono::seconds(5);
    /// Called before ranks are told to end because one of them has failed.
    std::function<void()> on_failure = nullptr;
  };

  Supervisor(EventLoop& loop, OutputRelay& relay, Descendants& descendants, const Options& options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Takes charge of the process of a rank, before run(). Ranks may come in any order.
  void add(Rank process);

  /// A child that is neither a rank nor a rank's, and is not waited for: it goes with the attempt.
  void leave_alone(pid_t helper) { helper_ = helper; }

  /// Returns when all ranks have ended, and what they left behind if they were told to end; or some
  /// would not even after SIGKILL.
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
  void take_end(int rank, pid_t pid, int end);
  bool reap(pid_t pid);
  void rank_ended(std::size_t index, int wait_status, const rusage& usage);
  void judge_failure(std::size_t index);
  std::chrono::milliseconds judgement_delay(std::size_t index) const;
  void judge_after(std::chrono::milliseconds delay, EventLoop::Clock::time_point latest);
  bool cause_is_exiting() const;
  void cancel_judgement();
  void end_attempt(AttemptOutcome::Cause cause, int signal, bool seen_by_terminal_group);
  void note_ends_by(int signal);
  void kill_ranks();
  void watch_exits(ExitWatch exits);
  void tell_who_is_waited_for();
  void resize_terminals();
  void send_to(std::size_t index, int signal);
  bool waits_for_orphans();
  void find_orphans();
  bool is_running_rank(pid_t pid) const;
  bool was_told(pid_t group) const;
  bool is_in_terminal_group(pid_t pid) const;
  void send_to_ranks(int signal, bool seen_by_terminal_group);
  void call_at(EventLoop::Clock::time_point when, EventLoop::Callback callback);

  EventLoop& loop_;
  OutputRelay& relay_;
  Descendants& descendants_;
  const Options options_;
  const EventLoop::Clock::time_point start_ = EventLoop::Clock::now();
  std::vector<Rank> ranks_;  // ascending, as those in outcome_
  AttemptOutcome outcome_;
  std::size_t running_ = 0;
  pid_t helper_ = 0;         // see leave_alone(); 0: none
  std::set<pid_t> orphans_;  // children now, that ranks have left behind
  bool children_changed_ = false;
  bool ending_ = false;
  int signal_ = 0;  // that told the ranks to end
  bool killed_ = false;
  bool interrupted_ = false;  // there was a SIGINT
  bool abandoned_ = false;
  std::optional<EventLoop::TimerId> judgement_;  // see judge_failure
  std::vector<EventLoop::TimerId> timers_;       // that refer to this object
};

}  // namespace dlaunch
