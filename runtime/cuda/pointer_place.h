// Where memory is, by what CUDA says about a pointer.
#pragma once

#include <cuda_runtime_api.h>

#include "runtime/device/device.h"

namespace dlaunch {

/// For what cudaPointerGetAttributes returned and gave, as `device` sees it. Memory counts as the
/// host's only if CUDA says so: where it cannot tell, as after a kernel's fault, queueing returns
/// the error, while reading a device's memory on the host would end the program.
inline MemoryPlace place_of_pointer(cudaError_t error, const cudaPointerAttributes& attributes,
                                    int device) {
  if (error == cudaErrorInvalidValue) return MemoryPlace::kHost;  // not known to CUDA
  if (error != cudaSuccess) return MemoryPlace::kThisDevice;
  switch (attributes.type) {
    case cudaMemoryTypeUnregistered:
    case cudaMemoryTypeHost:
      return MemoryPlace::kHost;
    case cudaMemoryTypeDevice:
      return attributes.device == device ? MemoryPlace::kThisDevice : MemoryPlace::kOtherDevice;
    default:  // managed
      return MemoryPlace::kThisDevice;
  }
}

}  // namespace dlaunch
