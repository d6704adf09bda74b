// dbench tune: measures the terms of the cost model on this machine and writes them to a file.
#pragma once

#include "runtime/comm/communicator.h"
#include "tools/bench/options.h"

namespace dlaunch::bench {

/// Measures what the job's ranks can reach: with shared memory its synchronisations and messages,
/// copies and additions; with TCP the messages in a host, or between hosts if there are several.
/// Rank 0 writes the model to options.model_path; what was not measured keeps the value the file
/// has, or the built-in one. `world` has two ranks or more. Throws StatusError, ConfigError.
void tune(Communicator& world, const JobEnvironment& job, const Options& options);

}  // namespace dlaunch::bench
