// What each rank of this node is started with, from what the user asked and what the job is.
#pragma once

#include <vector>

#include "launcher/command_line.h"
#include "launcher/rank_environment.h"
#include "launcher/spawn.h"
#include "launcher/standard_input.h"

namespace dlaunch {

/// By rank of this node. The environment is that of this process with the job's variables.
std::vector<RankStart> plan_ranks(const JobOptions& options, const JobIdentity& job,
                                  const StandardInput& input);

}  // namespace dlaunch
