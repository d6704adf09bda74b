// What each rank of this node is started with, from what the user asked and what the job is.
#pragma once

#include <vector>

#include "launcher/options/command_line.h"
#include "launcher/ranks/rank_environment.h"
#include "launcher/ranks/spawn.h"
#include "launcher/ranks/standard_input.h"

namespace dlaunch {

/// By rank of this node. The environment is that of this process with the job's variables.
std::vector<RankStart> plan_ranks(const JobOptions& options, const JobIdentity& job,
                                  const StandardInput& input);

}  // namespace dlaunch
