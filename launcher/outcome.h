// What became of a job, as plain values: the supervisor fills them in, the report prints them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <vector>

namespace dlaunch {

struct RankOutcome {
  pid_t pid = -1;
  bool running = true;
  int wait_status = 0;  // as waitpid() gives it
  std::chrono::nanoseconds lifetime{};
  bool signalled = false;  // dlaunch had already told it to end

  bool failed() const { return !running && wait_status != 0; }
};

struct JobOutcome {
  /// Why the job was ended before all ranks had finished by themselves.
  enum class Cause { kNone, kRankFailed, kTimeout, kSignal };

  Cause cause = Cause::kNone;
  std::optional<int> first_failed;   // the rank whose exit code is the job's
  int signal = 0;                    // with kSignal
  std::chrono::nanoseconds limit{};  // with kTimeout: what --timeout said
  bool grace_passed = false;         // some had to be killed
  std::vector<RankOutcome> ranks;

  /// What dlaunch exits with.
  int exit_code() const;
};

}  // namespace dlaunch
