// --dry-run: what each rank would be started with, and nothing is started.
#pragma once

#include <string>

#include "launcher/options/command_line.h"
#include "launcher/ranks/rank_environment.h"

namespace dlaunch {

/// For each rank of this node its command, stdin, cores, and what its environment has that
/// dlaunch's own has not. `program` is the path that was found. What only a real start decides
/// (ports, the token) is named as such.
std::string describe_job(const JobOptions& options, const JobIdentity& job,
                         const std::string& program);

}  // namespace dlaunch
