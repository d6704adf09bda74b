// A Communicator whose collectives and messages are done by the machine's MPI: for clusters whose
// MPI knows their fabric. Same interface, other promises where MPI has none: docs/mpi.md.
//
// Only in builds that found an MPI (CMake option DLAUNCH_MPI); link dlaunch::mpi.
//
//   auto world = dlaunch::running_under_mpirun() ? dlaunch::connect_mpi_world()
//                                                : dlaunch::connect_world();
#pragma once

#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"

namespace dlaunch {

struct MpiWorldOptions {
  std::chrono::nanoseconds timeout = kDefaultTimeout;
  /// Elements of one MPI call at most; longer buffers take several. Between 1 and INT_MAX, the same
  /// on all ranks.
  std::size_t largest_count = std::numeric_limits<int>::max();
};

/// True in a process that an mpirun, mpiexec or srun with a process manager's interface started;
/// not in a rank of dlaunch, which they may have started on every node.
bool running_under_mpirun();

/// The communicator of all ranks of MPI_COMM_WORLD, with MPI communicators of its own. Initialises
/// MPI unless the program has done so, with MPI_THREAD_MULTIPLE (kUnavailable if MPI has less to
/// offer); MPI that was initialised here is finalised with the last communicator that came of this
/// one, and cannot be initialised again after that. Blocks until all ranks have come.
Result<std::unique_ptr<Communicator>> connect_mpi_world(const MpiWorldOptions& options = {});

}  // namespace dlaunch
