// A Communicator over MPI communicators of its own. See mpi_world.h.
#pragma once

#include <memory>
#include <string>

#include <mpi.h>

#include "runtime/base/status.h"
#include "runtime/comm/part_name.h"
#include "runtime/mpi/mpi_library.h"
#include "runtime/mpi/mpi_world.h"

namespace dlaunch {

struct MpiCommunicatorOptions {
  MpiWorldOptions world;
  ReduceOrder reduce_order = ReduceOrder::kAny;
  std::string name = "world";  // begins the names of its parts
  PartName part;               // explains its errors, if it is one itself
};

/// Duplicates `comm`, once for each kind of call. A collective of its ranks.
Result<std::unique_ptr<Communicator>> make_mpi_communicator(std::shared_ptr<MpiLibrary> library,
                                                            MPI_Comm comm,
                                                            const MpiCommunicatorOptions& options);

}  // namespace dlaunch
