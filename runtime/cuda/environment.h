// What this program asks of CUDA and NCCL by the environment.
#pragma once

#include <cstdlib>

namespace dlaunch {

/// Asks for what the environment does not say otherwise. To be called before there are threads, and
/// before anything of CUDA's or NCCL's.
///
/// Of CUDA as many hardware queues as it gives, 32 instead of 8: a stream that waits for a flag of
/// another rank holds up all that share its queue, also what that rank waits for.
///
/// Of NCCL (2.26 and newer) to keep to the order in which the program calls it: by itself it orders
/// only what one communicator is given, and kernels of two of them (lanes) that start in different
/// orders on two GPUs may wait for each other for ever.
inline void set_gpu_environment() {
  // NOLINTBEGIN(concurrency-mt-unsafe)
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  // NOLINTEND(concurrency-mt-unsafe)
}

}  // namespace dlaunch
