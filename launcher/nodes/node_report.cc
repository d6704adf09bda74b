#include "launcher/nodes/node_report.h"

#include <chrono>

#include "launcher/failure/failure.h"
#include "launcher/failure/report.h"
#include "launcher/supervision/restart_policy.h"
#include "launcher/supervision/signals.h"

namespace dlaunch {

namespace {

std::int64_t nanoseconds_since(std::chrono::steady_clock::time_point when) {
  const auto age = std::chrono::steady_clock::now() - when;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(age).count();
}

}  // namespace

EndedRecord ended_record(const AttemptOutcome& attempt) {
  using Cause = AttemptOutcome::Cause;
  using How = EndedRecord::How;
  EndedRecord ended{.got_ready = attempt.got_ready, .exit_code = attempt.exit_code()};
  switch (attempt.cause) {
    case Cause::kNone:
      break;
    case Cause::kRankFailed:
      ended.how = How::kFailed;
      break;
    case Cause::kElsewhere:
      ended.how = How::kStopped;
      break;
    case Cause::kTimeout:
      ended.how = How::kTimeout;
      ended.error = "--timeout passed";
      ended.age_ns = nanoseconds_since(attempt.end_began);
      break;
    case Cause::kSignal:
      ended.how = How::kSignal;
      ended.error = "ended by " + signal_name(attempt.signal);
      ended.age_ns = nanoseconds_since(attempt.end_began);
      break;
  }
  if (attempt.failure) {
    ended.failure = serialize(*attempt.failure);
    ended.age_ns = nanoseconds_since(attempt.ranks[*attempt.first_failed].ended);
  }
  return ended;
}

EndedRecord not_started(const Status& why, int exit_code) {
  return {.how = EndedRecord::How::kNotStarted, .exit_code = exit_code, .error = why.to_string()};
}

bool is_about(const VerdictRecord& verdict, const AttemptOutcome& attempt) {
  return attempt.failure && serialize(*attempt.failure) == verdict.failure;
}

void take_verdict(const VerdictRecord& verdict, AttemptOutcome& attempt) {
  attempt.verdict = verdict.reason;
  if (is_about(verdict, attempt)) {
    // Ranks of other nodes may have failed too, and ended the round here before this one did.
    attempt.cause = AttemptOutcome::Cause::kRankFailed;
    return;
  }
  // What failed here was not the first.
  attempt.failure.reset();
  if (attempt.cause == AttemptOutcome::Cause::kRankFailed) {
    attempt.cause = AttemptOutcome::Cause::kElsewhere;
  }
  const auto first = parse_failure(verdict.failure);
  if (first.ok()) attempt.failure_elsewhere = *first;
}

std::vector<std::string> make_node_report(const VerdictRecord& verdict) {
  std::vector<std::string> lines;
  if (!verdict.reason.empty()) lines.push_back("dlaunch: " + verdict.reason);
  if (verdict.failure.empty()) return lines;
  const auto failure = parse_failure(verdict.failure);
  if (!failure.ok()) return {"dlaunch: " + failure.status().to_string()};
  for (std::string& line : describe_failure(*failure, true)) lines.push_back(std::move(line));
  return lines;
}

std::string describe_next(const VerdictRecord& verdict) {
  if (verdict.leftovers) return kNoRestartBesideLeftovers;
  if (verdict.action != VerdictRecord::Action::kAgain) return "";
  if (verdict.missing > 0) {
    const std::string nodes = verdict.missing == 1 ? " more node has" : " more nodes have";
    return "dlaunch: the job starts again once " + std::to_string(verdict.missing) + nodes +
           " come";
  }
  if (verdict.delay_ms == 0) return "dlaunch: the job starts again with the nodes that are there";
  return "dlaunch: restart in " + seconds(std::chrono::milliseconds(verdict.delay_ms));
}

}  // namespace dlaunch
