// The order in which a GPU does what several communicators of NCCL's are given.
#pragma once

#include <cstdlib>

namespace dlaunch {

/// Asks NCCL (2.26 and newer) to keep to the order in which the program calls it, unless the
/// environment says otherwise: by itself it orders only what one communicator is given, and kernels
/// of two of them (lanes) that start in different orders on two GPUs may wait for each other for
/// ever. To be called before there are threads, and before anything of NCCL's.
inline void ask_for_nccl_in_order() {
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace dlaunch
