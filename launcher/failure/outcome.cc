#include "launcher/failure/outcome.h"

#include <sys/wait.h>

#include "runtime/base/exit_codes.h"

namespace dlaunch {

int AttemptOutcome::exit_code() const {
  if (cause == Cause::kTimeout) return kLauncherTimeout;
  if (!first_failed) return kExitOk;
  const int status = ranks[*first_failed].wait_status;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace dlaunch
