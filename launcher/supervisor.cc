#include "launcher/supervisor.h"

#include <cerrno>
#include <csignal>
#include <utility>

#include <sys/epoll.h>
#include <sys/wait.h>

#include "runtime/base/exit_codes.h"

namespace dlaunch {
namespace {

// How long the cause of a broken connection may take to show up, see judge_failure.
constexpr std::chrono::milliseconds kJudgementDelay{20};
// A killed process ends at once unless it is stuck in the kernel.
constexpr std::chrono::seconds kKillLimit{10};

bool is_echo(const RankOutcome& rank) {
  return WIFEXITED(rank.wait_status) && WEXITSTATUS(rank.wait_status) == kExitCommunication;
}

}  // namespace

Supervisor::Supervisor(EventLoop& loop, OutputRelay& relay, const SupervisionOptions& options)
    : loop_(loop), relay_(relay), options_(options) {
  if (!options.timeout) return;
  outcome_.limit = *options.timeout;
  loop_.call_at(start_ + std::chrono::duration_cast<EventLoop::Clock::duration>(*options.timeout),
                [this] { end_job(JobOutcome::Cause::kTimeout, SIGTERM, false); });
}

Supervisor::~Supervisor() {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (outcome_.ranks[i].running) loop_.remove(ranks_[i].end.get());
  }
}

void Supervisor::add(Rank rank) {
  const std::size_t index = ranks_.size();
  relay_.add(static_cast<int>(index), rank.error_output.get());
  outcome_.ranks.push_back({.pid = rank.pid});
  ++running_;
  loop_.add(rank.end.get(), EPOLLIN, [this, index, pid = rank.pid] {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) rank_ended(index, status);
  });
  ranks_.push_back(std::move(rank));
}

void Supervisor::run() {
  while (running_ > 0 && !abandoned_) loop_.run_once();
}

void Supervisor::reap_children() {
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (outcome_.ranks[i].running && ranks_[i].pid == pid) rank_ended(i, status);
    }
  }
}

void Supervisor::rank_ended(std::size_t index, int wait_status) {
  RankOutcome& rank = outcome_.ranks[index];
  rank.running = false;
  rank.wait_status = wait_status;
  rank.lifetime = EventLoop::Clock::now() - start_;
  rank.signalled = ending_;
  --running_;
  loop_.remove(ranks_[index].end.get());
  relay_.drain(static_cast<int>(index));
  if (rank.failed()) judge_failure(index);
}

// The first failure ends the job and is its cause. But ranks that lose a peer fail too, with an
// exit code that says so, and a process closes its connections a moment before its end can be seen.
// So after such an echo the job goes on for a moment, in which the rank that caused it may show up.
void Supervisor::judge_failure(std::size_t index) {
  const bool replaces_echo = judgement_ && !is_echo(outcome_.ranks[index]) && outcome_.first_failed;
  if (!outcome_.first_failed || replaces_echo) outcome_.first_failed = static_cast<int>(index);
  if (ending_) return;
  const auto end = [this] {
    judgement_.reset();
    end_job(JobOutcome::Cause::kRankFailed, SIGTERM, false);
  };
  if (!is_echo(outcome_.ranks[index]) || running_ == 0) {
    if (judgement_) loop_.cancel(*judgement_);
    end();
  } else if (!judgement_) {
    judgement_ = loop_.call_at(EventLoop::Clock::now() + kJudgementDelay, end);
  }
}

void Supervisor::handle_signal(int signal, bool seen_by_terminal_group) {
  switch (signal) {
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT:
      if (ending_ && signal == SIGINT) return kill_job();
      if (ending_) return send_to_ranks(signal, seen_by_terminal_group);
      outcome_.signal = signal;
      return end_job(JobOutcome::Cause::kSignal, signal, seen_by_terminal_group);
    default:
      return send_to_ranks(signal, seen_by_terminal_group);
  }
}

void Supervisor::end_job(JobOutcome::Cause cause, int signal, bool seen_by_terminal_group) {
  if (ending_) return;
  ending_ = true;
  outcome_.cause = cause;
  if (running_ == 0) return;
  send_to_ranks(signal, seen_by_terminal_group);
  // A stopped process cannot act on the signal.
  send_to_ranks(SIGCONT, false);
  loop_.call_at(EventLoop::Clock::now() +
                    std::chrono::duration_cast<EventLoop::Clock::duration>(options_.grace),
                [this] {
                  outcome_.grace_passed = true;
                  kill_job();
                });
}

void Supervisor::kill_job() {
  send_to_ranks(SIGKILL, false);
  loop_.call_at(EventLoop::Clock::now() + kKillLimit, [this] { abandoned_ = true; });
}

// Only ranks that have not been reaped: the number of a reaped one may belong to a stranger.
void Supervisor::send_to_ranks(int signal, bool seen_by_terminal_group) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!outcome_.ranks[i].running) continue;
    if (!ranks_[i].in_terminal_group) {
      kill(-ranks_[i].pid, signal);
    } else if (!seen_by_terminal_group) {
      kill(ranks_[i].pid, signal);
    }
  }
}

}  // namespace dlaunch
