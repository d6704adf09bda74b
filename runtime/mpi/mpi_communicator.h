// A Communicator over MPI communicators of its own. See mpi_world.h.
#pragma once

#include <array>
#include <memory>

#include <mpi.h>

#include "runtime/base/status.h"
#include "runtime/mpi/mpi_library.h"
#include "runtime/mpi/mpi_world.h"

namespace dlaunch {

/// Duplicates `comm`, once for each kind of call. A collective of its ranks.
Result<std::unique_ptr<Communicator>> make_mpi_communicator(std::shared_ptr<MpiLibrary> library,
                                                            MPI_Comm comm,
                                                            const MpiWorldOptions& options,
                                                            ReduceOrder order);

}  // namespace dlaunch
