// DeviceTimer: how long a stream of a GPU took for what was put on it between two moments.
#pragma once

#include <memory>

struct CUstream_st;  // cudaStream_t points to one

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

/// The stream must outlive it. Throws Error, always in a build without CUDA.
std::unique_ptr<DeviceTimer> make_device_timer(CUstream_st* stream);

}  // namespace dlaunch::nn
