// Runs one job from its start to its end: store, ranks, supervision, report.
#pragma once

#include "launcher/job/launch_context.h"

namespace dlaunch {

/// Returns what dlaunch exits with. No process of the job is left then. Throws std::system_error if
/// the system has not even enough to begin with.
int launch_job(const LaunchContext& context);

}  // namespace dlaunch
