// dbench's collectives: every algorithm over every size.
#pragma once

#include "runtime/comm/communicator.h"
#include "tools/bench/options.h"

namespace dlaunch::bench {

/// Measures and reports (rank 0). False if a checked result is wrong. Throws StatusError
/// when communication fails.
bool run_sweep(Communicator& world, const Options& options);

}  // namespace dlaunch::bench
