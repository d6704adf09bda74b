// The contract of a Communicator: one set of tests (*_contract.cc) for all that implement it. They
// are compiled once and linked with a definition of the functions below: ranks as threads over the
// loopback network (contract_of_threads.cc), as processes that dlaunch starts
// (contract_of_processes.cc), as processes that mpirun starts (tests/mpi/contract_of_mpi.cc).
//
// A body may run in another process than the test: what it changes in captured variables counts for
// its rank alone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/collective/types.h"
#include "runtime/comm/communicator.h"

namespace dlaunch::testing {

/// Runs `body` on `world` ranks, each with a communicator of its own, new and of all of them.
void run_ranks(int world, const std::function<void(Communicator&)>& body);

/// The sizes of worlds to test with; known before the tests are registered.
std::vector<int> contract_worlds();
/// Of all_reduce.
std::vector<Algorithm> contract_algorithms();

/// Fresh in every run of a test and the same on all its ranks.
std::uint64_t contract_seed();

}  // namespace dlaunch::testing
