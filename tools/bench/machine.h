// dbench machine: what the cores do at best, multiplying and reading and copying memory, all ranks
// at the same time.
#pragma once

#include "runtime/comm/communicator.h"
#include "tools/bench/options.h"

namespace dlaunch::bench {

/// Called by all ranks; rank 0 prints, and writes options.json_path. Errors: exceptions.
void measure_machine(Communicator& world, const Options& options);

}  // namespace dlaunch::bench
