// Errors of CUDA and NCCL as Status.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "runtime/base/status.h"
#include "runtime/cuda/driver.h"

namespace dlaunch {

/// kIo "cudaMalloc: out of memory (cudaErrorMemoryAllocation)", or ok. Clears CUDA's last error.
Status cuda_status(cudaError_t error, std::string_view function);

/// Makes a device the thread's current one, and when it goes the context that the thread had
/// before, or none: to go back by cudaSetDevice would make a context, of hundreds of megabytes, on
/// a device that nobody uses. What fails here fails again in the call that follows.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) : before_(current_context()) {
    int number = -1;
    const bool already =
        before_ != nullptr && cudaGetDevice(&number) == cudaSuccess && number == device;
    changed_ = !already && cudaSetDevice(device) == cudaSuccess;
  }
  ~CurrentDevice() {
    if (changed_) set_current_context(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  const CUcontext before_;
  bool changed_ = false;
};

}  // namespace dlaunch
