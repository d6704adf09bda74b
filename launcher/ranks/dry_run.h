// --dry-run: what each rank would be started with, and nothing is started.
#pragma once

#include <string>

#include "launcher/nodes/node_settings.h"
#include "launcher/options/command_line.h"

namespace dlaunch {

/// For each rank of this node its command, stdin, cores, and what its environment has that
/// dlaunch's own has not. `program` is the path that was found. What only a real start decides
/// (ports, the token) is named as such. With several nodes, whose numbers of ranks this one does
/// not know, they are taken to have as many as this one.
std::string describe_job(const JobOptions& options, const NodeSettings& nodes,
                         const std::string& program);

}  // namespace dlaunch
