#include "launcher/report.h"

#include <cstdio>
#include <cstring>
#include <map>

#include <sys/wait.h>

#include "runtime/base/exit_codes.h"

namespace dlaunch {
namespace {

std::string seconds(std::chrono::nanoseconds time) {
  char text[32];
  const double value = std::chrono::duration<double>(time).count();
  std::snprintf(text, sizeof(text), value < 9.995 ? "%.2f s" : "%.0f s", value);
  return text;
}

std::string how_it_failed(int status) {
  if (WIFEXITED(status)) return "failed with exit code " + std::to_string(WEXITSTATUS(status));
  return "was killed by " + signal_name(WTERMSIG(status)) +
         (WCOREDUMP(status) ? " (core dumped)" : "");
}

std::string how_it_ended(const RankOutcome& rank) {
  if (rank.running) return "could not be killed";
  if (WIFSIGNALED(rank.wait_status)) {
    return (rank.signalled ? "ended by " : "killed by ") + signal_name(WTERMSIG(rank.wait_status));
  }
  const int code = WEXITSTATUS(rank.wait_status);
  return code == 0 ? "finished" : "exit code " + std::to_string(code);
}

// "0-2, 5" for ascending numbers.
std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += std::to_string(numbers[i]);
    if (end > i) text += (end == i + 1 ? ", " : "-") + std::to_string(numbers[end]);
    i = end + 1;
  }
  return text;
}

// "0-2 ended by SIGTERM; 3 finished", without the rank the report is about.
std::string how_ranks_ended(const JobOutcome& outcome, std::optional<int> except) {
  std::map<std::string, std::vector<int>> groups;
  for (std::size_t i = 0; i < outcome.ranks.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (rank != except) groups[how_it_ended(outcome.ranks[i])].push_back(rank);
  }
  std::string text;
  for (const auto& [how, ranks] : groups) {
    if (!text.empty()) text += "; ";
    text += ranges(ranks) + " " + how;
  }
  if (outcome.grace_passed) text += " (the grace period was not enough)";
  return text;
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

int JobOutcome::exit_code() const {
  if (cause == Cause::kTimeout) return kLauncherTimeout;
  if (!first_failed) return kExitOk;
  const int status = ranks[static_cast<std::size_t>(*first_failed)].wait_status;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::vector<std::string> make_report(const JobOutcome& outcome,
                                     const std::vector<std::string>& last_lines) {
  std::vector<std::string> lines;
  switch (outcome.cause) {
    case JobOutcome::Cause::kNone:
      break;
    case JobOutcome::Cause::kTimeout:
      lines.push_back("dlaunch: ended after --timeout " + seconds(outcome.limit) +
                      "; ranks: " + how_ranks_ended(outcome, std::nullopt));
      break;
    case JobOutcome::Cause::kSignal:
      lines.push_back("dlaunch: ended by " + signal_name(outcome.signal) +
                      "; ranks: " + how_ranks_ended(outcome, std::nullopt));
      break;
    case JobOutcome::Cause::kRankFailed: {
      const int rank = *outcome.first_failed;
      const RankOutcome& failed = outcome.ranks[static_cast<std::size_t>(rank)];
      lines.push_back("dlaunch: rank " + std::to_string(rank) + " (pid " +
                      std::to_string(failed.pid) + ") " + how_it_failed(failed.wait_status) +
                      " after " + seconds(failed.lifetime));
      if (!last_lines.empty()) lines.emplace_back("dlaunch: its last lines on stderr:");
      for (const std::string& line : last_lines) lines.push_back("  | " + line);
      if (outcome.ranks.size() > 1) {
        lines.push_back("dlaunch: the other ranks: " + how_ranks_ended(outcome, rank));
      }
      break;
    }
  }
  return lines;
}

}  // namespace dlaunch
