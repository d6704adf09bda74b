// Work that rank 0 does for all ranks, such as writing a checkpoint, for which the others wait.
#pragma once

#include <future>

#include "runtime/comm/communicator.h"

namespace dlaunch {

/// Collective: blocks until `work` of rank 0 has ended, however long that takes; of other ranks,
/// and of rank 0 if it is not valid, there is none. A rank that simply went on to its next
/// collective would end the job after the communicator's timeout; here all meet five times a
/// second, so that a rank which is lost is noticed while the work goes on. What the work has thrown
/// is left to get().
Status await_leader(Communicator& world, const std::future<void>& work);

}  // namespace dlaunch
