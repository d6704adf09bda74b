// In place of collectives on GPUs, in a build without CUDA.
#include "runtime/cuda/cuda_communicator.h"

namespace dlaunch {

Result<std::unique_ptr<DeviceWorld>> make_cuda_communicator(
    // NOLINTNEXTLINE(performance-unnecessary-value-param): as in the builds that take it over
    std::unique_ptr<Communicator> /*host*/, int /*device*/, CUstream_st* /*compute*/,
    const DeviceCommunicatorOptions& /*options*/) {
  return Status(StatusCode::kUnavailable, "this build has no CUDA");
}

}  // namespace dlaunch
