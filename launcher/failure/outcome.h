// What became of a job, as plain values: the supervisor fills them in, the reports print them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/failure/failure.h"
#include "launcher/failure/recorded_error.h"

namespace dlaunch {

struct RankOutcome {
  int rank = 0;  // in the job's world
  pid_t pid = -1;
  bool running = true;
  int wait_status = 0;     // as waitpid() gives it
  bool signalled = false;  // dlaunch had already told it to end

  // Since the attempt began.
  std::chrono::nanoseconds spawned{};
  std::chrono::nanoseconds executed{};            // exec of the program succeeded
  std::optional<std::chrono::nanoseconds> ready;  // its communicator was connected
  std::chrono::nanoseconds lifetime{};            // to its end

  bool joins_world = false;                        // uses our communicator
  std::chrono::system_clock::time_point ended_at;  // for people
  std::chrono::steady_clock::time_point ended;     // the same, by a clock that nobody sets
  std::int64_t peak_memory = 0;                    // bytes resident, its own and its children's
  std::chrono::microseconds user_time{};
  std::chrono::microseconds system_time{};
  std::vector<std::string> last_lines;    // on stderr
  std::optional<RecordedError> recorded;  // of a rank that failed

  bool failed() const { return !running && wait_status != 0; }
};

/// What another node of the job tells of an attempt.
struct NodeOutcome {
  int node = 0;
  std::string host;
  int first_rank = 0;
  int ranks = 0;
  bool lost = false;
  std::string text;  // attempt_report() of that node; empty: it could not tell
};

/// One start of all ranks of this node, to their end.
struct AttemptOutcome {
  /// Why the attempt was ended before all ranks had finished by themselves. kElsewhere: because of
  /// what happened on another node.
  enum class Cause { kNone, kRankFailed, kTimeout, kSignal, kElsewhere };

  int number = 0;  // from 0
  std::chrono::system_clock::time_point started;
  std::chrono::nanoseconds duration{};
  bool got_ready = false;  // see docs/launcher.md, restarts
  Cause cause = Cause::kNone;
  std::chrono::steady_clock::time_point end_began;  // with a cause: when ranks were told to end
  std::optional<std::size_t> first_failed;  // index in `ranks` of the one whose code is the job's
  std::optional<FailureRecord> failure;     // the same, with its story
  int signal = 0;                           // with kSignal
  std::set<int> passed_on;                  // signals that were, and ended nothing by themselves
  std::chrono::nanoseconds limit{};         // with kTimeout: what --timeout said
  bool grace_passed = false;                // some had to be killed
  bool orphans_killed = false;              // so had some that ranks had left behind
  std::vector<RankOutcome> ranks;

  // With several nodes:
  int node = 0;                                    // this one
  std::vector<NodeOutcome> others;                 // if --report wants them
  std::optional<FailureRecord> failure_elsewhere;  // the first of the job, if not on this node
  std::string verdict;                             // why it ended on all nodes, for people

  /// What dlaunch exits with if this attempt was the last.
  int exit_code() const;
};

struct JobOutcome {
  std::string job_id;
  std::string host;
  std::vector<std::string> command;
  int max_restarts = 0;
  int restarts = 0;                      // so far; nodes that come and go cost none
  std::vector<AttemptOutcome> attempts;  // the last one counts
};

}  // namespace dlaunch
