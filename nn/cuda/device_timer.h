// DeviceTimer: how long a stream of a GPU took for what was put on it between two moments.
#pragma once

#include <memory>

#include "nn/cuda/cuda_backend.h"

namespace dlaunch::nn {

/// Used by one thread.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  virtual void start() = 0;
  virtual void stop() = 0;
  /// Waits for the device until it has come to stop().
  virtual double seconds() = 0;
};

/// Of the backend's stream; the backend must outlive it. Throws Error, always in a build without
/// CUDA.
std::unique_ptr<DeviceTimer> make_device_timer(const CudaBackend& backend);

}  // namespace dlaunch::nn
