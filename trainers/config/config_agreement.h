// Ranks that were started with different configurations would train something that none of them
// says, or wait for each other for ever.
#pragma once

#include "runtime/comm/communicator.h"
#include "trainers/config/config.h"

namespace dlaunch {

/// Collective: compares the configuration with rank 0's, but for what a rank may have of its own:
/// where files are, and what only changes its memory or its speed. Throws StatusError, and on ranks
/// where it differs ConfigError with the first key and both values.
void check_same_configuration(Communicator& world, const TrainConfig& config);

}  // namespace dlaunch
