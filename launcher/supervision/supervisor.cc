#include "launcher/supervision/supervisor.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/base/number_list.h"
#include "launcher/ranks/rank_terminal.h"
#include "runtime/base/exit_codes.h"

namespace dlaunch {
namespace {

// How long the cause of a broken connection may take to show up, see judge_failure; and if it is on
// its way out: the kernel has closed its connections, but not yet all else that it had open.
constexpr std::chrono::milliseconds kCauseDelay{20};
constexpr std::chrono::seconds kLongestExit{2};
// The same for a signal that the terminal has sent to the guard as well: far longer than the guard
// takes to pass it on.
constexpr std::chrono::seconds kTerminalDelay{1};
// For ranks that have been killed: see ExitWatch.
constexpr std::chrono::seconds kKillPatience{10};
constexpr std::chrono::seconds kExitTurn{1};

bool is_echo(const RankOutcome& rank) {
  return WIFEXITED(rank.wait_status) && WEXITSTATUS(rank.wait_status) == kExitCommunication;
}

// Killed by it, or so that it looks like that to a shell.
bool ended_by(const RankOutcome& rank, int signal) {
  const int status = rank.wait_status;
  if (rank.running) return false;
  return WIFSIGNALED(status) ? WTERMSIG(status) == signal : WEXITSTATUS(status) == 128 + signal;
}

std::chrono::microseconds microseconds_of(const timeval& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

}  // namespace

Supervisor::Supervisor(EventLoop& loop, OutputRelay& relay, Descendants& descendants,
                       const Options& options)
    : loop_(loop), relay_(relay), descendants_(descendants), options_(options) {
  outcome_.number = options.attempt;
  outcome_.started = std::chrono::system_clock::now();
  if (!options.job_deadline) return;
  call_at(*options.job_deadline,
          [this] { end_attempt(AttemptOutcome::Cause::kTimeout, SIGTERM, false); });
}

Supervisor::~Supervisor() {
  cancel_judgement();
  for (const EventLoop::TimerId timer : timers_) loop_.cancel(timer);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (outcome_.ranks[i].running) loop_.remove(ranks_[i].end.get());
    relay_.release(outcome_.ranks[i].rank);
  }
}

void Supervisor::add(Rank process) {
  relay_.add(process.rank, std::move(process.output), process.error_output.get());
  const auto place = std::ranges::upper_bound(outcome_.ranks, process.rank, {}, &RankOutcome::rank);
  const auto index = place - outcome_.ranks.begin();
  outcome_.ranks.insert(place, {.rank = process.rank,
                                .pid = process.pid,
                                .spawned = process.spawned - start_,
                                .executed = process.executed - start_});
  ++running_;
  loop_.add(process.end.get(), EPOLLIN,
            [this, rank = process.rank, pid = process.pid, end = process.end.get()] {
              take_end(rank, pid, end);
            });
  ranks_.insert(ranks_.begin() + index, std::move(process));
}

void Supervisor::run() {
  while ((running_ > 0 || judgement_ || waits_for_orphans()) && !abandoned_) loop_.run_once();
  outcome_.duration = EventLoop::Clock::now() - start_;
}

// The end of a process that is traced is its tracer's first: SIGCHLD tells when that lets go. What
// is ready until then would keep this process busy.
void Supervisor::take_end(int rank, pid_t pid, int end) {
  if (reap(pid)) return;
  loop_.remove(end);
  const std::string tracer = tracer_of(pid);
  if (tracer.empty()) return;  // it just has let go
  relay_.write_line("dlaunch: rank " + std::to_string(rank) + " (pid " + std::to_string(pid) +
                    ") has ended; this counts when " + tracer + ", which traces it, lets go");
}

void Supervisor::reap_children() {
  while (reap(-1)) {
  }
}

// One child that has ended, or the process `pid`. False if there is none.
bool Supervisor::reap(pid_t pid) {
  int status = 0;
  rusage usage{};
  const pid_t ended = wait4(pid, &status, WNOHANG, &usage);
  if (ended < 0 && errno == EINTR) return true;
  if (ended <= 0) return false;
  children_changed_ = true;
  orphans_.erase(ended);
  if (helper_ == ended) helper_ = 0;  // its number may become another's
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (outcome_.ranks[i].running && ranks_[i].pid == ended) rank_ended(i, status, usage);
  }
  return true;
}

void Supervisor::rank_ended(std::size_t index, int wait_status, const rusage& usage) {
  RankOutcome& rank = outcome_.ranks[index];
  rank.running = false;
  rank.wait_status = wait_status;
  rank.ended = EventLoop::Clock::now();
  rank.lifetime = rank.ended - start_;
  rank.ended_at = std::chrono::system_clock::now();
  rank.signalled = ending_;
  rank.peak_memory = std::int64_t{usage.ru_maxrss} * 1024;
  rank.user_time = microseconds_of(usage.ru_utime);
  rank.system_time = microseconds_of(usage.ru_stime);
  --running_;
  loop_.remove(ranks_[index].end.get());
  relay_.drain(rank.rank);
  if (rank.failed()) judge_failure(index);
}

// The first failure ends the job and is its cause. But ranks that lose a peer fail too, with an
// exit code that says so, and a process closes its connections a moment before its end can be seen.
// So after such an echo the job goes on for a moment, in which the rank that caused it may show up.
void Supervisor::judge_failure(std::size_t index) {
  std::optional<std::size_t>& first = outcome_.first_failed;
  const bool replaces_echo =
      judgement_ && is_echo(outcome_.ranks[*first]) && !is_echo(outcome_.ranks[index]);
  if (!first || replaces_echo) first = index;
  if (ending_) return;
  const auto delay = judgement_delay(*first);
  if (judgement_ && delay.count() > 0 && first != index) return;  // as it was
  cancel_judgement();
  judge_after(delay, EventLoop::Clock::now() + kLongestExit);
}

void Supervisor::judge_after(std::chrono::milliseconds delay, EventLoop::Clock::time_point latest) {
  if (delay.count() == 0) return end_attempt(AttemptOutcome::Cause::kRankFailed, SIGTERM, false);
  judgement_ = loop_.call_at(EventLoop::Clock::now() + delay, [this, latest] {
    const bool wait = EventLoop::Clock::now() < latest && cause_is_exiting();
    judge_after(wait ? kCauseDelay : std::chrono::milliseconds(), latest);
  });
}

// Some rank is on its way out while the first failure is but an echo.
bool Supervisor::cause_is_exiting() const {
  if (!is_echo(outcome_.ranks[*outcome_.first_failed])) return false;
  return std::ranges::any_of(outcome_.ranks, [](const RankOutcome& rank) {
    const auto stat = rank.running ? read_process_stat(rank.pid) : std::nullopt;
    return stat && stat->exiting;
  });
}

// How long after its end it is known whether a rank is the cause.
std::chrono::milliseconds Supervisor::judgement_delay(std::size_t index) const {
  const RankOutcome& rank = outcome_.ranks[index];
  // Perhaps a Ctrl-C, of which the guard has not told yet.
  const bool by_terminal = ended_by(rank, SIGINT) || ended_by(rank, SIGHUP);
  if (by_terminal && ranks_[index].terminal_group != 0) return kTerminalDelay;
  return is_echo(rank) && running_ > 0 ? kCauseDelay : std::chrono::milliseconds();
}

void Supervisor::cancel_judgement() {
  if (judgement_) loop_.cancel(*judgement_);
  judgement_.reset();
}

void Supervisor::handle_signal(int signal, bool seen_by_terminal_group) {
  switch (signal) {
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
      if (signal == SIGINT && std::exchange(interrupted_, true)) return kill_ranks();
      if (ending_) return send_to_ranks(signal, seen_by_terminal_group);
      outcome_.signal = signal;
      return end_attempt(AttemptOutcome::Cause::kSignal, signal, seen_by_terminal_group);
    case SIGWINCH:
      return resize_terminals();
    default:
      outcome_.passed_on.insert(signal);
      return send_to_ranks(signal, seen_by_terminal_group);
  }
}

void Supervisor::end_attempt(AttemptOutcome::Cause cause, int signal, bool seen_by_terminal_group) {
  if (ending_) return;
  cancel_judgement();
  outcome_.cause = cause;
  if (cause == AttemptOutcome::Cause::kRankFailed && options_.on_failure) options_.on_failure();
  outcome_.end_began = EventLoop::Clock::now();
  if (seen_by_terminal_group) note_ends_by(signal);
  send_to_ranks(signal, seen_by_terminal_group);
  // A stopped process cannot act on the signal.
  send_to_ranks(SIGCONT, false);
  ending_ = true;  // from now on orphans are looked for, and told when they are found
  signal_ = signal;
  call_at(EventLoop::Clock::now() + options_.grace, [this] {
    outcome_.grace_passed = running_ > 0;
    kill_ranks();
    outcome_.orphans_killed = !orphans_.empty();
  });
}

// A signal that the terminal has sent may have ended the ranks of its group before dlaunch heard of
// it.
void Supervisor::note_ends_by(int signal) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    RankOutcome& rank = outcome_.ranks[i];
    if (ranks_[i].terminal_group != 0 && ended_by(rank, signal)) rank.signalled = true;
  }
}

void Supervisor::kill_ranks() {
  send_to_ranks(SIGKILL, false);
  if (std::exchange(killed_, true)) return;
  const auto now = EventLoop::Clock::now();
  // Those that show no sign of an end are given up just before.
  call_at(now + kKillPatience + kExitTurn, [this] { tell_who_is_waited_for(); });
  watch_exits(ExitWatch(kKillPatience, now));
}

void Supervisor::watch_exits(ExitWatch exits) {
  const auto now = EventLoop::Clock::now();
  for (const RankOutcome& rank : outcome_.ranks) {
    const auto stat = rank.running ? read_process_stat(rank.pid) : std::nullopt;
    if (stat) exits.see(rank.pid, *stat, now);
  }
  abandoned_ = abandoned_ || exits.expired(now);
  call_at(now + kExitTurn, [this, exits = std::move(exits)] { watch_exits(exits); });
}

void Supervisor::tell_who_is_waited_for() {
  std::vector<int> ranks;
  for (const RankOutcome& rank : outcome_.ranks) {
    if (rank.running) ranks.push_back(rank.rank);
  }
  if (ranks.empty()) return;
  relay_.write_line("dlaunch: killed, and still giving back what they have: rank" +
                    std::string(ranks.size() == 1 ? " " : "s ") + say_number_list(ranks));
}

// A terminal tells only the group in its foreground, and those of ranks have none.
void Supervisor::resize_terminals() {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!outcome_.ranks[i].running) continue;
    const int terminal = ranks_[i].error_output.get();
    if (set_terminal_size(ranks_[i].rank, STDERR_FILENO, terminal)) send_to(i, SIGWINCH);
  }
}

void Supervisor::send_to(std::size_t index, int signal) {
  const pid_t pid = ranks_[index].pid;
  // Nobody but the rank can have made a group of that number, whichever group it was started in.
  const bool has_group = kill(-pid, signal) == 0;
  // One that shares the terminal's group, or has joined another, is not in one of its own.
  if (!has_group || getpgid(pid) != pid) kill(pid, signal);
  const pid_t shared = ranks_[index].terminal_group;
  if (shared == 0) return;
  for (const Descendant& each : descendants_.find().value_or(std::vector<Descendant>())) {
    if (each.stat.group == shared && each.pid != pid) kill(each.pid, signal);
  }
}

bool Supervisor::waits_for_orphans() {
  if (!ending_ || killed_) return false;
  find_orphans();
  return !orphans_.empty();
}

// Children that are no ranks have come to this process as orphans. One that was in its rank's
// process group has had its signal; another (of timeout, of a shell with job control) only who
// started it would have passed it on to.
void Supervisor::find_orphans() {
  if (!ending_ || !std::exchange(children_changed_, false)) return;
  for (const Descendant& each : descendants_.find().value_or(std::vector<Descendant>())) {
    const ProcessStat& stat = each.stat;
    if (stat.parent != getpid() || stat.session != getsid(0) || stat.state == 'Z') continue;
    if (each.pid == helper_ || is_running_rank(each.pid)) continue;
    if (!orphans_.insert(each.pid).second || was_told(stat.group)) continue;
    kill(each.pid, signal_);
    kill(each.pid, SIGCONT);
  }
}

bool Supervisor::is_running_rank(pid_t pid) const {
  return std::ranges::any_of(
      outcome_.ranks, [&](const RankOutcome& rank) { return rank.running && rank.pid == pid; });
}

bool Supervisor::was_told(pid_t group) const {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const bool of_this_rank = group == ranks_[i].pid || group == ranks_[i].terminal_group;
    if (of_this_rank && outcome_.ranks[i].signalled) return true;
  }
  return false;
}

// A rank may have left it (timeout, setsid, a shell with job control).
bool Supervisor::is_in_terminal_group(pid_t pid) const {
  const pid_t group = getpgid(pid);
  return std::ranges::any_of(ranks_, [&](const Rank& rank) {
    return rank.terminal_group != 0 && rank.terminal_group == group;
  });
}

void Supervisor::call_at(EventLoop::Clock::time_point when, EventLoop::Callback callback) {
  timers_.push_back(loop_.call_at(when, std::move(callback)));
}

// Only to those that have not been reaped: the number of one that has may belong to a stranger.
void Supervisor::send_to_ranks(int signal, bool seen_by_terminal_group) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!outcome_.ranks[i].running) continue;
    if (seen_by_terminal_group && is_in_terminal_group(ranks_[i].pid)) continue;
    send_to(i, signal);
  }
  find_orphans();
  for (const pid_t orphan : orphans_) {
    if (!seen_by_terminal_group || !is_in_terminal_group(orphan)) kill(orphan, signal);
  }
}

}  // namespace dlaunch
