#include "launcher/failure/outcome.h"

#include <algorithm>

#include <sys/wait.h>

#include "runtime/base/exit_codes.h"

namespace dlaunch {

int AttemptOutcome::exit_code() const {
  if (cause == Cause::kTimeout) return kLauncherTimeout;
  // What is still there could not be killed, and has not ended well.
  const bool all_ended = std::ranges::none_of(ranks, &RankOutcome::running);
  if (!first_failed && cause == Cause::kSignal && !all_ended) return 128 + signal;
  if (!first_failed) return kExitOk;
  const int status = ranks[*first_failed].wait_status;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace dlaunch
