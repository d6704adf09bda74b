// Errors of CUDA and NCCL as Status.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "runtime/base/status.h"

namespace dlaunch {

/// kIo "cudaMalloc: out of memory (cudaErrorMemoryAllocation)", or ok. Clears CUDA's last error.
Status cuda_status(cudaError_t error, std::string_view function);

/// Makes a device the thread's current one, and the one before it when it goes. What fails here
/// fails again in the call that follows.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = device;
    changed_ = before_ != device && cudaSetDevice(device) == cudaSuccess;
  }
  ~CurrentDevice() {
    if (changed_) (void)cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace dlaunch
