// dbench p2p: two ranks over the Communicator, beside what sockets and memory do by themselves.
#pragma once

#include "runtime/comm/communicator.h"
#include "tools/bench/options.h"

namespace dlaunch::bench {

/// Measures and reports (rank 0). `world` has two ranks. Throws StatusError when communication
/// fails, std::system_error when a reference cannot be set up.
void run_pair(Communicator& world, const Options& options);

}  // namespace dlaunch::bench
