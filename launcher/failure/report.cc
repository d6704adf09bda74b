#include "launcher/failure/report.h"

#include <cstdio>
#include <map>
#include <optional>

#include <sys/wait.h>

#include "launcher/base/number_list.h"
#include "launcher/supervision/signals.h"

namespace dlaunch {
namespace {

std::string how_it_failed(const FailureRecord& failure) {
  if (failure.signal == 0) return "failed with exit code " + std::to_string(failure.exit_code);
  return "was killed by " + signal_name(failure.signal) +
         (failure.core_dumped ? " (core dumped)" : "");
}

std::string how_it_ended(const RankOutcome& rank) {
  if (rank.running) return "could not be killed";
  if (WIFSIGNALED(rank.wait_status)) {
    return (rank.signalled ? "ended by " : "killed by ") + signal_name(WTERMSIG(rank.wait_status));
  }
  const int code = WEXITSTATUS(rank.wait_status);
  return code == 0 ? "finished" : "exit code " + std::to_string(code);
}

// "0-2 ended by SIGTERM; 3 finished", without the rank the report is about. What followed from its
// failure is called collateral.
std::string how_ranks_ended(const AttemptOutcome& outcome, std::optional<std::size_t> except) {
  std::map<std::string, std::vector<int>> groups;
  for (std::size_t i = 0; i < outcome.ranks.size(); ++i) {
    const RankOutcome& rank = outcome.ranks[i];
    if (i == except) continue;
    const bool collateral = except && (rank.running || rank.failed());
    groups[how_it_ended(rank) + (collateral ? " (collateral)" : "")].push_back(rank.rank);
  }
  std::string text;
  for (const auto& [how, ranks] : groups) {
    if (!text.empty()) text += "; ";
    text += say_number_list(ranks) + " " + how;
  }
  if (outcome.grace_passed) text += " (the grace period was not enough)";
  return text;
}

std::chrono::nanoseconds from_seconds(double value) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(value));
}

}  // namespace

std::string seconds(std::chrono::nanoseconds time) {
  char text[32];
  const double value = std::chrono::duration<double>(time).count();
  std::snprintf(text, sizeof(text), value < 9.995 ? "%.2f s" : "%.0f s", value);
  return text;
}

std::vector<std::string> describe_failure(const FailureRecord& failure, bool with_last_lines) {
  std::vector<std::string> lines{"dlaunch: rank " + std::to_string(failure.rank) + " (pid " +
                                 std::to_string(failure.pid) + " on " + failure.host + ") " +
                                 how_it_failed(failure) + " after " +
                                 seconds(from_seconds(failure.after_seconds))};
  if (!failure.probable_cause.empty()) {
    lines.push_back("dlaunch: probable cause: " + failure.probable_cause);
  }
  const bool said = failure.last_lines == std::vector{failure.probable_cause};
  if (with_last_lines && !failure.last_lines.empty() && !said) {
    lines.emplace_back("dlaunch: its last lines on stderr:");
    for (const std::string& line : failure.last_lines) lines.push_back("  | " + line);
  }
  return lines;
}

std::vector<std::string> make_report(const AttemptOutcome& outcome, bool repeat_last_lines) {
  std::vector<std::string> lines;
  switch (outcome.cause) {
    case AttemptOutcome::Cause::kNone:
      break;
    case AttemptOutcome::Cause::kTimeout:
      lines.push_back("dlaunch: ended after --timeout " + seconds(outcome.limit) +
                      "; ranks: " + how_ranks_ended(outcome, std::nullopt));
      break;
    case AttemptOutcome::Cause::kSignal:
      lines.push_back("dlaunch: ended by " + signal_name(outcome.signal) +
                      "; ranks: " + how_ranks_ended(outcome, std::nullopt));
      break;
    case AttemptOutcome::Cause::kRankFailed:
      lines = describe_failure(*outcome.failure, repeat_last_lines);
      if (outcome.ranks.size() > 1) {
        lines.push_back("dlaunch: the other ranks: " +
                        how_ranks_ended(outcome, outcome.first_failed));
      }
      break;
    case AttemptOutcome::Cause::kElsewhere:
      lines.push_back("dlaunch: the ranks of this node: " + how_ranks_ended(outcome, std::nullopt));
      break;
  }
  if (outcome.orphans_killed) {
    lines.emplace_back(
        "dlaunch: what ranks had left behind was killed: the grace period was not enough");
  }
  return lines;
}

}  // namespace dlaunch
