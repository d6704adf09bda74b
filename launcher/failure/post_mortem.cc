#include "launcher/failure/post_mortem.h"

#include <algorithm>

#include <sys/resource.h>
#include <sys/wait.h>

#include "launcher/failure/probable_cause.h"

namespace dlaunch {
namespace {

// Whose exception was raised before `rank` failed, though dlaunch noticed that one first: a process
// may take long to end, and others fail for want of it. Empty: nobody's.
std::string earlier_error(const AttemptOutcome& attempt, const RankOutcome& rank) {
  const auto ended = std::chrono::floor<std::chrono::seconds>(rank.ended_at.time_since_epoch());
  std::int64_t first = ended.count();
  if (rank.recorded && rank.recorded->seconds > 0) first = rank.recorded->seconds;
  const RankOutcome* earliest = nullptr;
  for (const RankOutcome& other : attempt.ranks) {
    if (!other.recorded || other.recorded->seconds == 0) continue;
    if (other.recorded->seconds >= first) continue;
    first = other.recorded->seconds;
    earliest = &other;
  }
  if (earliest == nullptr) return "";
  return "before it, in rank " + std::to_string(earliest->rank) + ", " +
         python_error(*earliest->recorded);
}

// Whether it may have been killed at the hard limit, which ranks inherit. The kernel looks at that
// by ticks, which on a busy machine add up to something else than the times that it reports.
bool near_processor_limit(const RankOutcome& rank) {
  rlimit limit{};
  if (getrlimit(RLIMIT_CPU, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return false;
  const auto used = std::chrono::duration<double>(rank.user_time + rank.system_time);
  return used.count() >= static_cast<double>(limit.rlim_max) / 2;
}

std::string cause_of(const AttemptOutcome& attempt, const RankOutcome& rank,
                     const PostMortemSources& sources) {
  std::string cause = probable_cause({.wait_status = rank.wait_status,
                                      .last_lines = rank.last_lines,
                                      .recorded = rank.recorded,
                                      .kernel = sources.kernel.about(rank.pid),
                                      .near_processor_limit = near_processor_limit(rank),
                                      .speaks_our_protocol = rank.joins_world});
  const std::string earlier = earlier_error(attempt, rank);
  if (!cause.empty() && !earlier.empty()) cause += "; ";
  return cause + earlier;
}

FailureRecord record_of(const AttemptOutcome& attempt, const RankOutcome& rank,
                        const PostMortemSources& sources) {
  const bool signalled = WIFSIGNALED(rank.wait_status);
  const auto when = rank.ended_at.time_since_epoch();
  return {.rank = rank.rank,
          .host = sources.host,
          .pid = rank.pid,
          .attempt = attempt.number,
          .when_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(when).count(),
          .after_seconds = std::chrono::duration<double>(rank.lifetime).count(),
          .exit_code = signalled ? 0 : WEXITSTATUS(rank.wait_status),
          .signal = signalled ? WTERMSIG(rank.wait_status) : 0,
          .core_dumped = signalled && WCOREDUMP(rank.wait_status),
          .probable_cause = cause_of(attempt, rank, sources),
          .last_lines = rank.last_lines};
}

// All communicators were connected; or nobody uses ours (the store alone does not count), and the
// ranks lived long enough.
bool got_ready(const AttemptOutcome& attempt, std::chrono::nanoseconds ready_after) {
  const auto& ranks = attempt.ranks;
  if (std::ranges::any_of(ranks, &RankOutcome::joins_world)) {
    return std::ranges::all_of(ranks,
                               [](const RankOutcome& rank) { return rank.ready.has_value(); });
  }
  const auto lived =
      attempt.first_failed ? ranks[*attempt.first_failed].lifetime : attempt.duration;
  return lived >= ready_after;
}

}  // namespace

void add_post_mortem(AttemptOutcome& attempt, const PostMortemSources& sources) {
  for (std::size_t i = 0; i < attempt.ranks.size(); ++i) {
    RankOutcome& rank = attempt.ranks[i];
    rank.last_lines = sources.relay.last_lines(rank.rank);
    const ShownRank shown = sources.board.read(static_cast<int>(i));
    rank.joins_world = shown.joins_world;
    if (rank.failed()) {
      const std::string file = error_file(sources.error_folder, attempt.number, rank.rank);
      rank.recorded = read_recorded_error(file);
    }
    if (shown.ready) rank.ready = *shown.ready - sources.start;
  }
  attempt.got_ready = got_ready(attempt, sources.ready_after);
  // Another node may have been quicker to end the job for which a rank here had failed, too.
  const bool failed_too = attempt.cause == AttemptOutcome::Cause::kElsewhere &&
                          attempt.first_failed && !attempt.ranks[*attempt.first_failed].signalled;
  if (attempt.cause == AttemptOutcome::Cause::kRankFailed || failed_too) {
    attempt.failure = record_of(attempt, attempt.ranks[*attempt.first_failed], sources);
  }
}

}  // namespace dlaunch
