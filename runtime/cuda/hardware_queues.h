// How many queues of a GPU the streams of this program share.
#pragma once

#include <cstdlib>

namespace dlaunch {

/// Asks CUDA for as many as it gives, 32 instead of 8, unless the environment says otherwise. A
/// stream that waits for a flag of another rank holds up all that share its queue, also what that
/// rank waits for. To be called before there are threads, and before anything of CUDA's.
inline void ask_for_hardware_queues() {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace dlaunch
