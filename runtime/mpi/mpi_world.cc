#include "runtime/mpi/mpi_world.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "runtime/mpi/mpi_communicator.h"
#include "runtime/mpi/mpi_library.h"

namespace dlaunch {

bool running_under_mpirun() {
  // In a rank of dlaunch MPI's variables are inherited from the mpirun that started the dlaunch.
  if (std::getenv("DLAUNCH_STORE") != nullptr) return false;  // NOLINT(concurrency-mt-unsafe)
  // Open MPI and what else uses PMIx; MPICH, Intel MPI and others of its family.
  return std::ranges::any_of(
      std::initializer_list<const char*>{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"},
      [](const char* name) {
        return std::getenv(name) != nullptr;  // NOLINT(concurrency-mt-unsafe)
      });
}

Result<std::unique_ptr<Communicator>> connect_mpi_world(const MpiWorldOptions& options) {
  if (options.largest_count < 1 ||
      options.largest_count > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return Status(StatusCode::kInvalidArgument, "largest_count is between 1 and INT_MAX, not " +
                                                    std::to_string(options.largest_count));
  }
  auto library = MpiLibrary::open();
  if (!library.ok()) return library.status().within("connecting over MPI");
  auto world = make_mpi_communicator(*std::move(library), MPI_COMM_WORLD, {.world = options});
  return world.ok() ? std::move(world) : world.status().within("connecting over MPI");
}

}  // namespace dlaunch
