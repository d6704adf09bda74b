// A job on this machine alone: attempt after attempt, each with a store and a secret of its own, so
// that nothing of an earlier one gets in.
#pragma once

#include "launcher/job/attempt_runner.h"
#include "launcher/job/launch_context.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// Returns when there is nothing to start again; how the last attempt ended is in the runner's
/// outcome. An error: ranks, or what they need, could not be started.
Status run_on_single_node(AttemptRunner& runner, const LaunchContext& context);

}  // namespace dlaunch
