// Work that a rank does by itself and that all others wait for, such as rank 0's writing of a
// checkpoint, or the reading of images.
#pragma once

#include <future>

#include "runtime/comm/communicator.h"

namespace dlaunch {

/// Collective: blocks until the `work` of every rank has ended, however long that takes; a rank
/// whose `work` is not valid has none. A rank that simply went on to its next collective would end
/// the job after the communicator's timeout; here all meet five times a second, so that a rank
/// which is lost is noticed while the work goes on. What the work has thrown is left to get().
Status await_work(Communicator& world, const std::future<void>& work);

}  // namespace dlaunch
