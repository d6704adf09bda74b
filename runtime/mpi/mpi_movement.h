// Collectives that move data without reducing it, as MPI calls.
#pragma once

#include "runtime/base/status.h"
#include "runtime/mpi/mpi_operation.h"

namespace dlaunch {

/// Begins a broadcast, scatter, gather, all_gather or all_to_all: by MPI's collective of that name
/// if MPI's ints can count the buffers, otherwise by messages between all ranks concerned.
Status begin_movement(const MpiContext& context, const CollectiveCall& call,
                      MpiOperation& operation);

}  // namespace dlaunch
